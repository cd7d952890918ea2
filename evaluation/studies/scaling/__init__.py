"""The study of scaling: how good a policy gets over the updates of its training."""
