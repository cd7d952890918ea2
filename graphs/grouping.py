"""Grouping: ops become op groups, so that a placer decides about tens of things instead of thousands; and back.

Ours, after multilevel graph partitioners. Units (ops that are placed together anyway) are merged in rounds; each
round pairs up neighbours, those first that save much communication for their size: w(u, v)^2 / (c(u) c(v)), the
rating "expansion" of Holtgrewe, Sanders & Schulz (2010), section 3.1. No round makes a cycle: units get levels that
grow along every edge, and only units of adjacent levels are paired, as Herrmann et al. (2019), section 4.2, do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from graphs.errors import InputError
from graphs.op_graph import Bools, Floats, Ints, OpGraph, Phase

LARGEST_SHARE = 1.5  # a group is at most so many times the average, while there are others to merge

# The device on which sizes are compared; only the ratio of its speeds matters.
_FLOPS_PER_SECOND = 10e12
_BYTES_PER_SECOND = 750e9


def group_ops(graph: OpGraph, groups: int) -> OpGraph:
    """Merge the units of a graph into at most `groups` op groups, and into exactly that many if it has as many.

    Each op group is one op per phase, tied together, whose costs are sums; its output is all that its members send
    to other op groups, so every consumer elsewhere receives all of it. Of a graph that is grouped already, the
    members stay the finest ops. Units that can only run interleaved count as one.
    Raises InputError for less than one group.
    """
    if groups < 1:
        raise InputError(f"cannot make {groups} op groups of graph {graph.name!r}; ask for at least 1")
    edges = _order_edges(graph)
    label = _strongly_connected(graph.units[edges], graph.num_units)
    units, label = _in_order(label[graph.units])
    size = _sizes(graph, units)
    cluster = _coarsen(_Quotient.of(label[edges] if False else units[edges], _carried(graph, edges), size), groups)
    return _coarse_graph(graph, cluster[units])


def expand(coarse: OpGraph, placement: NDArray[np.integer]) -> Ints:
    """(member ops,) devices, from those of a grouped graph's ops, (ops,). Raises InputError if it is not grouped."""
    if coarse.members is None:
        raise InputError(f"graph {coarse.name!r} is not grouped; there is nothing to expand")
    return np.asarray(placement, np.int64)[coarse.member_of]
