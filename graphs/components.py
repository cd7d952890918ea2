"""Components of graphs, (edges, 2) node numbers: which nodes are tied, and which are on a common cycle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphs.order import numbered_by_first, topological_order

Ints = NDArray[np.int64]


def connected_components(pairs: Ints, nodes: int) -> Ints:
    """(nodes,) the component of each node, numbered in the order of their first nodes; `pairs`, (pairs, 2), are tied.

    Every node points to a node of its component, at first to itself. Each round ties what the two nodes of a pair point
    to: the larger number points to the smaller from then on. A few rounds suffice, and NumPy does each at once
    (Shiloach and Vishkin 1982). SciPy has the same function, but takes four times as long to import as NumPy.
    """
    root = np.arange(nodes)
    while True:
        ends = root[pairs]
        apart = ends[ends[:, 0] != ends[:, 1]]
        if not len(apart):
            return np.unique(root, return_inverse=True)[1]
        np.minimum.at(root, apart.max(axis=1), apart.min(axis=1))
        while (root[root] != root).any():
            root = root[root]


def strong_components(edges: Ints, nodes: int) -> Ints:
    """(nodes,) a number for each node, equal for those on a common cycle; in the order of their first nodes."""
    if len(topological_order(edges, nodes)) == nodes:
        return np.arange(nodes)  # no cycle
    from scipy.sparse import coo_array  # imported late: slow, and captured graphs have no cycle
    from scipy.sparse.csgraph import connected_components as scipys

    matrix = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(nodes, nodes))
    return numbered_by_first(scipys(matrix, connection="strong")[1])
