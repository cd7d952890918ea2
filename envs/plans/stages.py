"""Stages: the parts of a graph that follow one another on the devices of a plan."""

from collections.abc import Sequence

import numpy as np

from graphs.algorithms.order import ready_first
from graphs.algorithms.pairs import distinct_pairs
from graphs.op_graph import Ints, OpGraph, Phase

Devices = tuple[tuple[int, ...], ...]


def device_sets(devices: Devices) -> tuple[Devices, Ints]:
    """The distinct devices of ops, in the order in which they occur first, and (ops,) which of them each op has."""
    numbers: dict[tuple[int, ...], int] = {}
    which = np.array([numbers.setdefault(several, len(numbers)) for several in devices], np.int64)
    return tuple(numbers), which


def stages_of(graph: OpGraph, devices: Devices, given: Sequence[int]) -> Ints:
    """(ops,) the stage of each op: as given, or else ops on the same devices are one.

    Those are numbered in the order of the forward pass and, where that leaves the choice, of their first ops.
    """
    if given:
        return np.array(given, np.int64)
    sets, which = device_sets(devices)
    order = ready_first(stage_edges(graph, which)[0], np.arange(len(sets)))
    return np.argsort(order)[which]


def stage_edges(graph: OpGraph, stage: Ints) -> tuple[Ints, Ints]:
    """(pairs, 2) stages of which the first feeds the other in the forward pass, and (pairs,) an edge that does so."""
    edges = np.flatnonzero((graph.phase[graph.edges] == Phase.FORWARD).all(axis=1))
    between = stage[graph.edges[edges]]
    leaves = between[:, 0] != between[:, 1]
    pairs, which = distinct_pairs(between[leaves])
    example = np.zeros(len(pairs), np.int64)
    example[which[::-1]] = edges[leaves][::-1]
    return pairs, example
