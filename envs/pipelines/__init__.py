"""Pipelines: a graph as a chain of layers, and plans of consecutive layers on sets of devices."""
