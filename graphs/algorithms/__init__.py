"""Algorithms on edges and numbers alone: orders, components, pairs."""
