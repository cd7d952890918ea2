"""Splitting a graph into consecutive stages."""
