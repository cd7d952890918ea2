"""Comparisons of placers on problems."""
