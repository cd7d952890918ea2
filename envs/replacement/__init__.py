"""Replacement: a model that runs already is placed again, since its devices or its costs have changed."""
