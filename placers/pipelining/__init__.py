"""Pipelines planned on paper: what a pipeline of layers costs by a formula, and searches for the best by it."""
