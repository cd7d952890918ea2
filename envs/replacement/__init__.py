"""Replacement: a model that runs already is placed anew, since its devices or its costs have changed."""
