"""Longest paths through an op graph, in seconds; loops over flat lists, which Python reads faster than arrays."""

from __future__ import annotations

import numpy as np

from graphs.op_graph import Floats, OpGraph


def longest_remaining(graph: OpGraph, seconds: Floats, between: Floats | None = None) -> Floats:
    """(ops,) seconds of the longest path from the start of each op to the end.

    Ops take `seconds`, (ops,), and edges `between`, (edges,), or no time.
    """
    offsets, edges = graph.successors
    starts, consumers = offsets.tolist(), graph.edges[edges, 1].tolist()
    delays = (np.zeros(len(edges)) if between is None else between[edges]).tolist()
    remaining = seconds.tolist()
    for op in graph.topological_order[::-1].tolist():
        out = range(starts[op], starts[op + 1])
        remaining[op] += max([delays[edge] + remaining[consumers[edge]] for edge in out], default=0.0)
    return np.array(remaining, np.float64)


def earliest_starts(graph: OpGraph, seconds: Floats) -> Floats:
    """(ops,) seconds of the longest path from the beginning to the start of each op; ops take `seconds`, (ops,)."""
    offsets, edges = graph.predecessors
    starts, producers = offsets.tolist(), graph.edges[edges, 0].tolist()
    taken, begin, end = seconds.tolist(), [0.0] * len(graph), [0.0] * len(graph)
    for op in graph.topological_order.tolist():
        begin[op] = max([end[producer] for producer in producers[starts[op] : starts[op + 1]]], default=0.0)
        end[op] = begin[op] + taken[op]
    return np.array(begin, np.float64)
