"""Bounds of single placements: seconds that no order of the ops can beat once each unit has its device.

They follow from heads and tails, as in job-shop scheduling (Carlier 1982): the longest path to the start of an op and
the one from its end, with the transfers between devices. Ops of one device run one after another: those that cannot
start before some time take, from then on, at least all their seconds and the shortest of their tails.
"""

import numpy as np

from graphs.op_graph import Floats, Ints
from graphs.problem import Problem

AT_ONCE = 4096  # placements, for the memory that their heads and tails take


def placement_bounds(problem: Problem, op_seconds: Floats, placements: Ints) -> Floats:
    """(plans,) seconds that each of (plans, units) placements takes at least; `op_seconds` is (ops, devices)."""
    parts = (placements[first : first + AT_ONCE] for first in range(0, len(placements), AT_ONCE))
    return np.concatenate([_bounds(problem, op_seconds, part) for part in parts])


def _bounds(problem: Problem, op_seconds: Floats, placements: Ints) -> Floats:
    """The same. An array with a row per op and a column per placement is written (ops, plans)."""
    graph = problem.graph
    device = placements.T[graph.units]  # (ops, plans)
    seconds = op_seconds[np.arange(len(graph))[:, None], device]
    takes_time = seconds > 0
    launch = np.where(takes_time, problem.hold_seconds[device], 0.0)
    head, tail = np.zeros_like(seconds), np.zeros_like(seconds)
    offsets, by_producer = graph.successors
    for op in graph.topological_order.tolist():
        for edge in by_producer[offsets[op] : offsets[op + 1]].tolist():
            consumer = graph.edges[edge, 1]
            arrival = head[op] + seconds[op] + _transfer(problem, edge, device)
            np.maximum(head[consumer], arrival, out=head[consumer])
    for op in graph.topological_order[::-1].tolist():
        for edge in by_producer[offsets[op] : offsets[op + 1]].tolist():
            consumer = graph.edges[edge, 1]
            left = tail[consumer] + seconds[consumer] + _transfer(problem, edge, device)
            np.maximum(tail[op], left, out=tail[op])
    bounds: Floats = (head + seconds + tail).max(axis=0)
    after = tail - launch  # nothing need follow the launch after the last op of a device
    for limits in (head, after):
        for op in range(len(graph)):
            # itself, and what of its device has no less before it, or after it
            among = takes_time & takes_time[op] & (device == device[op]) & (limits >= limits[op])
            work = np.where(among, seconds + launch, 0.0).sum(axis=0)
            first, last = (np.where(among, ends, np.inf).min(axis=0) for ends in (head, after))
            np.maximum(bounds, np.where(takes_time[op], first + work + last, 0.0), out=bounds)
    return bounds


def _transfer(problem: Problem, edge: int, device: Ints) -> Floats | float:
    """(plans,) seconds of what an edge carries between devices, given those of all ops, (ops, plans)."""
    graph, cluster = problem.graph, problem.cluster
    if graph.control[edge]:
        return 0.0
    here, there = device[graph.edges[edge]]
    per_byte = np.divide(1.0, cluster.bandwidth[here, there], out=np.zeros(len(here)), where=here != there)
    found: Floats = np.where(here != there, cluster.latency[here, there], 0.0) + graph.carried_bytes[edge] * per_byte
    return found
