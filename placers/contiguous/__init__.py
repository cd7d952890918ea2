"""Contiguous splits: what max-load planners have in common."""
