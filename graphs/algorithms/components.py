"""Components of graphs: which nodes are tied, given (pairs, 2) node numbers."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csgraph, csr_array

Ints = NDArray[np.int64]


def connected_components(pairs: Ints, nodes: int) -> Ints:
    """(nodes,) the component of each node, numbered in the order of their first nodes; `pairs`, (pairs, 2), are tied.

    Every node points to a node of its component, at first to itself. Each round ties what the two nodes of a pair point
    to: the larger number points to the smaller from then on. A few rounds suffice, and NumPy does each at once
    (Shiloach and Vishkin 1982).
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
    """(nodes,) the strongly connected component of each node: nodes on a cycle of edges, (edges, 2), are in one."""
    matrix = csr_array((np.ones(len(edges), np.int8), tuple(edges.T)), shape=(nodes, nodes))
    found: Ints = csgraph.connected_components(matrix, connection="strong")[1].astype(np.int64)
    return found
