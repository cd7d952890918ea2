"""Longest paths through an op graph, in seconds; loops over flat lists, which Python reads faster than arrays."""

import numpy as np

from graphs.op_graph import Floats, Ints, OpGraph


def longest_remaining(graph: OpGraph, seconds: Floats, between: Floats | None = None) -> Floats:
    """(ops,) seconds of the longest path from the start of each op to the end.

    Ops take `seconds`, (ops,), and edges `between`, (edges,), or no time.
    """
    edges = _by_producer(graph)[::-1]
    producers, consumers = (graph.edges[edges, end].tolist() for end in (0, 1))
    delays = (np.zeros(len(edges)) if between is None else between[edges]).tolist()
    taken, behind = seconds.tolist(), [0.0] * len(graph)
    for producer, consumer, delay in zip(producers, consumers, delays, strict=True):
        remaining = delay + (taken[consumer] + behind[consumer])
        if remaining > behind[producer]:
            behind[producer] = remaining
    return seconds + np.array(behind, np.float64)


def earliest_starts(graph: OpGraph, seconds: Floats) -> Floats:
    """(ops,) seconds of the longest path from the beginning to the start of each op; ops take `seconds`, (ops,)."""
    edges = _by_producer(graph)
    producers, consumers = (graph.edges[edges, end].tolist() for end in (0, 1))
    taken, start = seconds.tolist(), [0.0] * len(graph)
    for producer, consumer in zip(producers, consumers, strict=True):
        end = start[producer] + taken[producer]
        if end > start[consumer]:
            start[consumer] = end
    return np.array(start, np.float64)


def _by_producer(graph: OpGraph) -> Ints:
    """(edges,) edges by the position of their producers in the topological order."""
    return np.argsort(graph.topological_position[graph.edges[:, 0]], kind="stable")
