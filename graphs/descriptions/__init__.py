"""Descriptions in index notation of the ops of a graph, joined where ops pass views on, and their axes as factors."""
