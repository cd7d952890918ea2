"""Coarsening: merging the nodes of a graph in pairs, again and again, until a given number is left.

Ours, after multilevel graph partitioners. Each round merges disjoint pairs of linked nodes, those first that save much
traffic for their size: by w(u, v)^2 / c(u) c(v), the rating `expansion*2` of Holtgrewe, Sanders & Schulz (2010), where
the product is one of vectors, since a node is large in several respects. A node waits for a good neighbour rather than
being merged with any. One run gives groupings of every size, and those of few groups are unions of those of many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphs.algorithms.pairs import distinct_pairs
from graphs.op_graph import Bools, Floats, Ints

LARGEST = 3.0  # a merged node is at most this times the average size, as long as others can be merged
RELAXED = 1.2  # when there are none, the limit grows by this factor
BOUND = 3.0  # but to at most this times the average at the end, where constraints keep nodes apart
GOOD = 0.5  # a good neighbour is rated at least this share of a node's best
FEW = 0.02  # two rounds that merge less than this share of the nodes merge too few

Pairs = list[tuple[int, int]]


def coarsen(
    links: Ints, traffic: Floats, size: Floats, counts: Sequence[int], constraint: Ints | None = None
) -> list[Ints]:
    """(nodes,) the merged node of each node, for each number of merged nodes in `counts`.

    A number beyond that of the nodes leaves them apart. `links`, (links, 2), join nodes, `traffic`, (links,), is what
    they carry, and `size`, (nodes, respects), is >= 0. Nodes are only merged with those of the same `constraint`,
    (nodes,), so that more can be left. Whatever numbers are asked for in addition changes no result.
    """
    total = float(size.sum())
    merging = _Merging(_Graph.of(links, traffic, size, constraint), counts)
    bound = np.inf if constraint is None else BOUND * total / max(min(counts), 1)
    slack, waits = 1.0, True
    while merging.goes_on:
        before = len(merging.graph)
        limit = min(LARGEST * slack * total / before, bound)
        merging.merge(_neighbours(merging.graph, limit, waits))
        if before - len(merging.graph) >= FEW * before:
            waits = True
        elif waits:
            waits = False
        else:
            merging.merge(_siblings(merging.graph, limit))
            if len(merging.graph) == before and limit >= bound:
                break
            slack *= RELAXED
    return [merging.found.get(count, merging.label) for count in counts]


def summed(label: Ints, values: Floats, count: int = 0) -> Floats:
    """(labels,) sum of the values, (n,), that have each label, (n,); `count` labels at least."""
    return np.asarray(np.bincount(label, values, minlength=count), np.float64)


@dataclass(frozen=True, eq=False)
class _Graph:
    """A graph without parallel links or loops."""

    ends: Ints  # (links, 2)
    traffic: Floats  # (links,)
    size: Floats  # (nodes, respects)
    constraint: Ints  # (nodes,)

    @classmethod
    def of(cls, ends: Ints, traffic: Floats, size: Floats, constraint: Ints | None) -> _Graph:
        apart = ends[:, 0] != ends[:, 1]
        pairs, which = distinct_pairs(np.sort(ends[apart], axis=1))
        free = np.zeros(len(size), np.int64)
        return cls(pairs, summed(which, traffic[apart], len(pairs)), size, free if constraint is None else constraint)

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def total(self) -> Floats:
        """(nodes,) the size of each node in all respects together."""
        return np.asarray(self.size.sum(axis=1))

    @cached_property
    def rating(self) -> Floats:
        """(links,) how much a merger of its two ends is worth: the power of two below it.

        Branches that are alike up to roundings, or nearly, are so merged alike, from their beginnings on.
        """
        one, other = self.ends.T
        product = np.maximum((self.size[one] * self.size[other]).sum(axis=1), 1e-12 * self.total.mean() ** 2)
        with np.errstate(divide="ignore"):
            return np.asarray(np.exp2(np.floor(np.log2(self.traffic**2 / np.maximum(product, 1e-300)))))

    def fits(self, one: Ints, other: Ints, limit: float) -> Bools:
        """(pairs,) whether the merger of two nodes is allowed."""
        small = self.total[one] + self.total[other] <= limit
        return np.asarray(small & (self.constraint[one] == self.constraint[other]))


class _Merging:
    """A graph that becomes smaller, and the labels of its first nodes whenever it has a number that is asked for."""

    def __init__(self, graph: _Graph, counts: Sequence[int]) -> None:
        self.graph = graph
        self.label = np.arange(len(graph))
        self.found = {count: self.label for count in counts if count >= len(graph)}
        self._awaited = sorted({count for count in counts if count < len(graph)})

    @property
    def goes_on(self) -> bool:
        """Whether a smaller graph is asked for."""
        return bool(self._awaited)

    def merge(self, pairs: Pairs) -> None:
        """Merge disjoint pairs, the first of them first."""
        graph = self.graph
        while self._awaited and self._awaited[-1] >= len(graph) - len(pairs):
            count = self._awaited.pop()
            self.found[count] = _joined(len(graph), pairs[: len(graph) - count])[self.label]
        if not pairs:
            return
        joined = _joined(len(graph), pairs)
        nodes = len(graph) - len(pairs)
        size = np.stack([summed(joined, column, nodes) for column in graph.size.T], axis=1)
        constraint = np.empty(nodes, np.int64)
        constraint[joined] = graph.constraint
        self.graph = _Graph.of(joined[graph.ends], graph.traffic, size, constraint)
        self.label = joined[self.label]


def _joined(nodes: int, pairs: Pairs) -> Ints:
    """(nodes,) the new number of each node once disjoint pairs are merged, in the order of the old ones."""
    joined = np.arange(nodes)
    if pairs:
        ends = np.array(pairs)
        joined[ends] = ends.min(axis=1)[:, None]
    is_kept = joined == np.arange(nodes)
    return np.asarray((np.cumsum(is_kept) - 1)[joined])


def _neighbours(graph: _Graph, limit: float, waits: bool) -> Pairs:
    """Disjoint pairs of linked nodes to merge, the best first; good ones only, while they wait for those."""
    one, other = graph.ends.T
    fits = graph.fits(one, other, limit)
    chosen = np.flatnonzero(fits & _is_good(graph, fits) if waits else fits)
    best_first = chosen[np.argsort(-graph.rating[chosen], kind="stable")]
    is_taken = [False] * len(graph)
    pairs: Pairs = []
    for u, v in zip(one[best_first].tolist(), other[best_first].tolist(), strict=True):
        if not (is_taken[u] or is_taken[v]):
            pairs.append((u, v))
            is_taken[u] = is_taken[v] = True
    return pairs


def _is_good(graph: _Graph, allowed: Bools) -> Bools:
    """(links,) whether a link is nearly the best of those allowed, at both of its ends."""
    rating = np.where(allowed, graph.rating, 0.0)
    best = np.zeros(len(graph))
    for end in graph.ends.T:
        np.maximum.at(best, end, rating)
    enough: Bools = rating[:, None] >= GOOD * best[graph.ends]
    return enough[:, 0] & enough[:, 1]


def _siblings(graph: _Graph, limit: float) -> Pairs:
    """Disjoint pairs of any nodes: those that exchange most with the same node, then the smallest."""
    nearest = np.full(len(graph), -1)
    one, other = graph.ends[np.argsort(graph.traffic, kind="stable")].T
    nearest[one], nearest[other] = other, one
    order = np.lexsort((graph.total, nearest, graph.constraint))
    fits = graph.fits(order[:-1], order[1:], limit).tolist()
    pairs: Pairs = []
    position = 0
    while position < len(fits):
        if fits[position]:
            pairs.append((int(order[position]), int(order[position + 1])))
        position += 2 if fits[position] else 1
    return pairs
