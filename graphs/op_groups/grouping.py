"""Grouping: ops are tied into op groups, so that a placer decides about tens of things instead of thousands."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np

from graphs.algorithms.order import levels, numbered_by_first
from graphs.algorithms.pairs import distinct_pairs
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats, Ints, OpGraph, Phase
from graphs.op_groups.coarsening import coarsen, summed
from graphs.op_groups.units import Units

MERGED = (  # the reason why a file is refused
    "its ops are merged into op groups, which only earlier versions read; place the graph they were merged from, with "
    "--groups to tie its ops"
)

Grouping: TypeAlias = int | Literal["modules"] | None  # how many, one for each module, or every unit by itself
MODULES: Literal["modules"] = "modules"

_log = logging.getLogger("placelab")

# The device on which sizes are compared, of the order of a P100; only the ratio of its speeds matters.
_FLOPS_PER_SECOND = 10e12
_BYTES_PER_SECOND = 750e9

SKIPPING = 0.1  # what the bytes of an edge count that a longer path goes around


def check_groups(groups: Grouping) -> None:
    """Raise InputError for a number of op groups that no graph can have."""
    if groups not in (None, MODULES) and (not isinstance(groups, int) or groups < 1):
        raise InputError(
            f"cannot make {groups!r} op groups; ask for at least 1, for one of each module with --groups modules, or "
            "leave every op a unit with --groups none (groups=None in Python)"
        )


def tie_ops(graph: OpGraph, groups: int) -> OpGraph:
    """The same ops, tied into op groups: `groups` units to place, or as many as there are if those are fewer.

    Ops of a group are only placed together, so that a simulation stays exact to the op: a group is no block that runs
    at once, and groups may form cycles, such as cells of a recurrent net that are each tied over several steps. Ops
    that may run on different devices are not tied; that this leaves more groups than asked for is logged. Raises
    InputError for less than one group.
    """
    tied = tie_levels(graph, [groups])[0]
    if tied.num_units > groups:
        _log.warning(
            "graph %r: asked for %d op groups, made %d: ops that may run on different devices are not tied together",
            *(graph.name, groups, tied.num_units),
        )
    return tied


def untied(graph: OpGraph) -> OpGraph:
    """The same ops without op groups, those of a graph's own file included."""
    return replace(graph, group=np.zeros(0, np.int64)) if (graph.group >= 0).any() else graph


def tie_levels(graph: OpGraph, counts: Sequence[int]) -> list[OpGraph]:
    """The graph tied into several numbers of op groups, the finest first; groups of a level are unions of the finer's.

    Each level is what `tie_ops` makes. Raises InputError for less than one group.
    """
    for count in counts:
        check_groups(count)
    constraint = _constraints(graph)
    free = not constraint.any()
    links, traffic = _links(graph)
    finest_first = sorted(counts, reverse=True)
    labels = coarsen(links, traffic, _sizes(graph), finest_first, None if free else constraint)
    return [replace(graph, group=numbered_by_first(label[graph.units])) for label in labels]


def _links(graph: OpGraph) -> tuple[Ints, Floats]:
    """(links, 2) pairs of units that feed each other, and (links,) the bytes that count for tying them.

    These are what crosses if the two are apart, in all phases: weights that steps share have gradients to be added up,
    and tie the steps. What skips others counts less: it is not saved for long, since a group with a hole sends into the
    hole and back. The order of ops is a link without bytes.
    """
    units, ends = Units(graph), np.sort(graph.units[graph.edges], axis=1)
    apart = ends[:, 0] != ends[:, 1]
    pairs, which = distinct_pairs(ends[apart])
    traffic = np.zeros(len(pairs))
    traffic[distinct_pairs(np.concatenate([pairs, units.links]))[1][len(pairs) :]] = units.link_bytes
    is_forward, is_tight = (np.bincount(which, each[apart], len(pairs)) > 0 for each in _forward_edges(graph))
    return pairs, np.where(is_forward & ~is_tight, SKIPPING * traffic, traffic)


def _forward_edges(graph: OpGraph) -> tuple[Bools, Bools]:
    """(edges,) whether an edge is of the forward pass, and whether no longer path makes it a skip.

    An edge that is no skip leads from one level to the next, counted from the sources or from the sinks.
    """
    is_forward: Bools = (graph.phase[graph.edges] == Phase.FORWARD).all(axis=1)
    edges = graph.edges[is_forward]
    is_tight = np.zeros(len(graph.edges), np.bool_)
    for from_sources in (True, False):
        level = levels(edges, len(graph), from_sources=from_sources)
        is_tight[is_forward] |= level[edges[:, 1]] - level[edges[:, 0]] == 1
    return is_forward, is_tight


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


def _sizes(graph: OpGraph) -> Floats:
    """(units, 2) each unit's share of the time and its share of the memory."""
    seconds = np.maximum(graph.flops / _FLOPS_PER_SECOND, graph.bytes_accessed / _BYTES_PER_SECOND)
    amounts = [seconds, graph.weight_bytes + graph.output_bytes]
    shares = [summed(graph.units, amount / max(amount.sum(), 1e-30)) for amount in amounts]
    return np.stack(shares, axis=1)
