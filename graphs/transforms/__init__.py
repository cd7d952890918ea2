"""Graphs made of graphs: another batch, a part of it, layers that are frozen."""
