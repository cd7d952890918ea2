"""Grouping: ops are tied into op groups, so that a placer decides about tens of things instead of thousands."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np

from graphs.coarsening import LARGEST, coarsen, summed
from graphs.components import strong_components
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats, Ints, OpGraph, Phase
from graphs.order import levels, numbered_by_first

MERGED = (  # the reason why a file is refused
    "its ops are merged into op groups, which only earlier versions read; place the graph they were merged from, with "
    "--groups to tie its ops"
)

_log = logging.getLogger("placelab")

# The device on which sizes are compared, of the order of a P100; only the ratio of its speeds matters.
_FLOPS_PER_SECOND = 10e12
_BYTES_PER_SECOND = 750e9


def check_groups(groups: int) -> None:
    """Raise InputError for a number of op groups that no graph can have."""
    if not isinstance(groups, int) or groups < 1:
        raise InputError(
            f"cannot make {groups!r} op groups; ask for at least 1, or leave every op a unit with --groups none "
            "(groups=None in Python)"
        )


def tie_ops(graph: OpGraph, groups: int) -> OpGraph:
    """The same ops, tied into op groups: `groups` units to place, or as many as there are if those are fewer.

    Ops of a group are only placed together, so that a simulation stays exact to the op. The forward edges between op
    groups form no cycle, unless those between units do and joining them would leave too few groups. Ops that may run on
    different devices are not tied; that this leaves more groups than asked for is logged. Raises InputError for less
    than one group.
    """
    check_groups(groups)
    edges = _UnitEdges.of(graph)
    tied = replace(graph, group=_clusters(graph, edges, _joined_on_cycles(graph, edges, groups), groups))
    if tied.num_units > groups:
        _log.warning(
            "graph %r: asked for %d op groups, made %d: ops that may run on different devices are not tied together",
            *(graph.name, groups, tied.num_units),
        )
    return tied


@dataclass(frozen=True, eq=False)
class _UnitEdges:
    """Edges between units, in the order of the forward pass where that is known.

    Phases follow each other, so only an edge within a phase can be part of a cycle. The backward pass is taken to run
    against the order of the forward pass; where that makes a cycle, edges are turned later.
    """

    ends: Ints  # (edges, 2) units
    carried: Floats  # (edges,) bytes
    is_forward: Bools  # (edges,)

    @classmethod
    def of(cls, graph: OpGraph) -> _UnitEdges:
        phases = graph.phase[graph.edges]
        within = phases[:, 0] == phases[:, 1]
        edges, phase = graph.edges[within], phases[within, 0]
        units = graph.units[np.where((phase == Phase.BACKWARD)[:, None], edges[:, ::-1], edges)]
        apart = units[:, 0] != units[:, 1]
        return cls(units[apart], graph.carried_bytes[within][apart], phase[apart] == Phase.FORWARD)


def _clusters(graph: OpGraph, edges: _UnitEdges, label: Ints, groups: int) -> Ints:
    """(ops,) the op group of each op, where units of one label, (units,), are in one group."""
    of_op = label[graph.units]
    ends = _along_the_forward_pass(graph, label[edges.ends], edges.is_forward, of_op)
    constraint = _constraints(graph)[np.unique(label, return_index=True)[1]]
    return numbered_by_first(coarsen(ends, edges.carried, _sizes(graph, of_op), groups, constraint)[of_op])


def _joined_on_cycles(graph: OpGraph, edges: _UnitEdges, groups: int) -> Ints:
    """(units,) labels: units on a common cycle share one, as long as enough labels are left for the groups asked for.

    Units on a cycle of forward edges can only run interleaved. Other cycles arise where the backward pass runs
    otherwise than against the forward pass, and may hold the whole graph: those that would be too large stay apart.
    """
    size, least = _sizes(graph, graph.units), min(groups, graph.num_units)
    size = size if size.any() else np.ones(len(size))
    constraint = _constraints(graph)
    label = _merged(edges.ends[edges.is_forward], np.arange(len(size)), size, constraint, np.inf, least)
    return _merged(edges.ends, label, size, constraint, LARGEST * size.sum() / min(groups, 2**53), least)


def _merged(edges: Ints, label: Ints, size: Floats, constraint: Ints, limit: float, least: int) -> Ints:
    """(units,) labels after labels on a common cycle became one, small cycles first, while `least` labels are left.

    What joins the largest label of a cycle is at most `limit` in size, and has its constraint; `size` and `constraint`
    are (units,).
    """
    component = strong_components(label[edges], int(label.max()) + 1)  # (labels,)
    label_size = summed(label, size)
    largest = np.zeros(int(component.max()) + 1)
    np.maximum.at(largest, component, label_size)
    first = np.unique(component[label], return_index=True)[1]
    differ = np.bincount(component[label], constraint != constraint[first][component[label]]) > 0
    fits = (summed(component, label_size) - largest <= limit) & ~differ
    count = np.bincount(component)
    order = np.argsort(np.where(fits, count, len(label) + 1), kind="stable")
    left = len(component) - np.cumsum(count[order] - 1)
    fits[order[left < least]] = False
    return numbered_by_first(np.where(fits[component], component, len(count) + np.arange(len(component)))[label])


def _along_the_forward_pass(graph: OpGraph, ends: Ints, is_forward: Bools, of_op: Ints) -> Ints:
    """(edges, 2) the same edges without cycles: those on one are turned to follow an order of the forward pass.

    It orders nodes by their level in the forward pass, then by their first op, so that of the forward edges only those
    between nodes that run interleaved are turned. `of_op`, (ops,), is the node of each op.
    """
    nodes = int(of_op.max()) + 1
    component = strong_components(ends, nodes)
    interleaved = strong_components(ends[is_forward], nodes)
    condensed = interleaved[ends[is_forward]]
    level = levels(condensed[condensed[:, 0] != condensed[:, 1]], int(interleaved.max()) + 1)[interleaved]
    _, first = np.unique(of_op[graph.topological_order], return_index=True)
    rank = np.empty(nodes, np.int64)
    rank[np.lexsort((first, level))] = np.arange(nodes)
    on_cycle = component[ends[:, 0]] == component[ends[:, 1]]
    against = rank[ends[:, 0]] > rank[ends[:, 1]]
    return np.where((on_cycle & against)[:, None], ends[:, ::-1], ends)


def _constraints(graph: OpGraph) -> Ints:
    """(units,) a number that is equal for units whose ops name the same devices that they may run on."""
    if not graph.devices:
        return np.zeros(graph.num_units, np.int64)
    named: list[set[frozenset[str]]] = [set() for _ in range(graph.num_units)]
    for unit, devices in zip(graph.units.tolist(), graph.devices, strict=True):
        if devices:
            named[unit].add(frozenset(devices))
    numbers: dict[frozenset[frozenset[str]], int] = {}
    return np.array([numbers.setdefault(frozenset(each), len(numbers)) for each in named], np.int64)


def _sizes(graph: OpGraph, units: Ints) -> Floats:
    """(units,) the mean of each unit's share of the time and its share of the memory."""
    seconds = np.maximum(graph.flops / _FLOPS_PER_SECOND, graph.bytes_accessed / _BYTES_PER_SECOND)
    amounts = [seconds, graph.weight_bytes + graph.output_bytes]
    time, memory = (amount / max(amount.sum(), 1e-30) for amount in amounts)
    return summed(units, (time + memory) / 2)
