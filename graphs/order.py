"""Orders of directed graphs whose edges are pairs of node numbers: topological, by level, or most urgent first."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def topological_order(edges: Ints, nodes: int) -> Ints:
    """(nodes,) nodes, each after all that feed it; as soon as possible, ties by number. Shorter if there is a cycle."""
    return _walk(edges, nodes)[0]


def levels(edges: Ints, nodes: int, *, from_sources: bool = True) -> Ints:
    """(nodes,) levels that grow along every edge, (edges, 2): as near as possible to the sources, or to the sinks."""
    if from_sources:
        return _walk(edges, nodes)[1]
    found = _walk(edges[:, ::-1], nodes)[1]
    distance: Ints = found.max() - found
    return distance


def ready_first(edges: Ints, rank: NDArray[np.generic]) -> Ints:
    """(nodes,) a topological order: of the nodes that wait for none, always the one of least rank, (nodes,), first.

    Ties go by number. A cycle is cut open at its node of lowest number.
    """
    following, waiting, ranks = _following(edges, len(rank)), _waiting(edges, len(rank)), rank.tolist()
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
        for target in following[node]:
            waiting[target] -= 1
            if waiting[target] == 0 and target not in seen:
                seen.add(target)
                heappush(ready, (ranks[target], target))
    return np.array(order, np.int64)


def _walk(edges: Ints, nodes: int) -> tuple[Ints, Ints]:
    """Kahn's algorithm: nodes as they become ready, and (nodes,) the longest way to each, in edges."""
    following, waiting = _following(edges, nodes), _waiting(edges, nodes)
    level = [0] * nodes
    order = [node for node, count in enumerate(waiting) if count == 0]
    for node in order:
        for target in following[node]:
            level[target] = max(level[target], level[node] + 1)
            waiting[target] -= 1
            if waiting[target] == 0:
                order.append(target)
    return np.array(order, np.int64), np.array(level, np.int64)


def _following(edges: Ints, nodes: int) -> list[list[int]]:
    """The nodes that each node feeds, by number."""
    following: list[list[int]] = [[] for _ in range(nodes)]
    for source, target in edges[np.argsort(edges[:, 1], kind="stable")].tolist():
        following[source].append(target)
    return following


def _waiting(edges: Ints, nodes: int) -> list[int]:
    """How many edges lead to each node."""
    counts: list[int] = np.bincount(edges[:, 1], minlength=nodes).tolist()
    return counts
