"""Frozen problems, and results on them that anybody can verify."""
