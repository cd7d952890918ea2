"""Splits into consecutive stages: of a chain of units, and of a contracted graph by its ideals."""
