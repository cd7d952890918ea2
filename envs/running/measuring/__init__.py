"""Measurements: speeds of links, seconds of ops in a step, and what running an op costs."""
