"""Clusters by name. An extension folder: one file, one kind of machine.

A file has a literal `CONFIGURATIONS: tuple[str, ...]` of knob strings and `build(*, knobs) -> Cluster`. The numbers
are data-sheet peaks, each with its source; where none is published, the comment says that the value is ours.
"""

from dataclasses import replace

from graphs.cluster import Cluster
from graphs.foundation import by_name
from graphs.foundation.errors import InputError


def checked(spec: str, built: object) -> Cluster:
    """What `build` of a user's file or of another package returned; of a file, it is called by its spec.

    Raises InputError for what is no cluster.
    """
    if not isinstance(built, Cluster):
        raise InputError(f"{spec!r}: expected a graphs.cluster.Cluster, got {type(built).__name__}")
    return built if by_name.own(spec) is None else replace(built, name=spec)
