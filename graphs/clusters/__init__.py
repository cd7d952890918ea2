"""Clusters by name. An extension folder: one file, one kind of machine.

A file has a literal `CONFIGURATIONS: tuple[str, ...]` of knob strings and `build(*, knobs) -> Cluster`. The numbers
are data-sheet peaks, each with its source; where none is published, the comment says that the value is ours.
"""
