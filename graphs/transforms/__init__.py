"""Graphs made of graphs: a part of the batch, layers that are frozen."""
