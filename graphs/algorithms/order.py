"""Orders of directed graphs whose edges are pairs of node numbers: topological, by level, or most urgent first.

Also labels of nodes, numbered in the order of the nodes.
"""

from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from graphs.algorithms.components import strong_components

Ints = NDArray[np.int64]


def topological_order(edges: Ints, nodes: int) -> Ints:
    """(nodes,) nodes, each after all that feed it; as soon as possible, ties by number. Shorter if there is a cycle."""
    return _kahn(edges, nodes)[0]


def is_acyclic(edges: Ints, nodes: int) -> bool:
    """Whether no cycle is among the edges, (edges, 2): no edge to itself, and each node its own strong component."""
    if (edges[:, 0] < edges[:, 1]).all():  # as most graphs are numbered; a hundredth of the time
        return True
    if (edges[:, 0] == edges[:, 1]).any():
        return False
    return bool(strong_components(edges, nodes).max(initial=-1) == nodes - 1)


def levels(edges: Ints, nodes: int, *, from_sources: bool = True) -> Ints:
    """(nodes,) levels that grow along every edge, (edges, 2): as near as possible to the sources, or to the sinks."""
    if from_sources:
        return _kahn(edges, nodes)[1]
    found = _kahn(edges[:, ::-1], nodes)[1]
    distance: Ints = found.max() - found
    return distance


def ready_first(edges: Ints, rank: NDArray[np.generic]) -> Ints:
    """(nodes,) a topological order: of the nodes that are ready, always the one of least rank, (nodes,), first.

    Ties go by number. A cycle is cut open at its node of lowest number.
    """
    by_rank = np.argsort(rank, kind="stable")
    position = np.empty(len(rank), np.int64)
    position[by_rank] = np.arange(len(rank))
    if (position[edges[:, 0]] < position[edges[:, 1]]).all():  # found in a hundredth of the time that the loop takes
        return by_rank
    (starts, following), waiting, ranks = successors(edges, len(rank)), _in_degrees(edges, len(rank)), rank.tolist()
    ready = [(ranks[node], node) for node, count in enumerate(waiting) if count == 0]
    heapify(ready)
    seen, order, lowest = {node for _, node in ready}, list[int](), 0
    while len(order) < len(ranks):
        if not ready:
            while lowest in seen:
                lowest += 1
            ready.append((ranks[lowest], lowest))
            seen.add(lowest)
        _, node = heappop(ready)
        order.append(node)
        for target in following[starts[node] : starts[node + 1]]:
            waiting[target] -= 1
            if waiting[target] == 0 and target not in seen:
                seen.add(target)
                heappush(ready, (ranks[target], target))
    return np.array(order, np.int64)


def numbered_by_first(label: NDArray[np.integer]) -> Ints:
    """(nodes,) the same labels, (nodes,), numbered 0, 1, ... in the order in which they occur first."""
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def compressed_rows(keys: Ints, then: Ints, rows: int) -> tuple[Ints, Ints]:
    """(offsets (rows + 1,), positions (n,)): where each row's number is in the keys, (n,), those of least `then` first.

    Row k is positions[offsets[k] : offsets[k + 1]].
    """
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=rows), out=offsets[1:])
    return offsets, np.lexsort((then, keys))


def successors(edges: Ints, nodes: int) -> tuple[list[int], list[int]]:
    """Compressed rows (offsets (nodes + 1,), nodes (edges,)): what each node feeds, in ascending order.

    Flat lists: loops in Python read them faster than arrays, and a list per node would take longer to make than to use.
    """
    offsets, positions = compressed_rows(edges[:, 0], edges[:, 1], nodes)
    return offsets.tolist(), edges[positions, 1].tolist()


def _kahn(edges: Ints, nodes: int) -> tuple[Ints, Ints]:
    """Kahn's algorithm: nodes as they become ready, and (nodes,) the longest path to each, in edges."""
    (starts, following), waiting = successors(edges, nodes), _in_degrees(edges, nodes)
    level = [0] * nodes
    order = [node for node, count in enumerate(waiting) if count == 0]
    for node in order:
        for target in following[starts[node] : starts[node + 1]]:
            waiting[target] -= 1
            if waiting[target] == 0:
                level[target] = level[node] + 1  # nodes come level by level: of what feeds the target, none is higher
                order.append(target)
    return np.array(order, np.int64), np.array(level, np.int64)


def _in_degrees(edges: Ints, nodes: int) -> list[int]:
    """(nodes,) how many edges lead to each node."""
    counts: list[int] = np.bincount(edges[:, 1], minlength=nodes).tolist()
    return counts
