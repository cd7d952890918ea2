"""Descriptions: what is known, in index notation, of the ops of a graph."""

from __future__ import annotations

from graphs.described import Described
from graphs.op_graph import OpGraph


def descriptions_of(graph: OpGraph) -> tuple[Described | None, ...]:
    """(ops,) each op in index notation; None where that is not known."""
    return graph.described or (None,) * len(graph)
