"""Coarsening: merging the nodes of an acyclic graph until a given number is left, without ever making a cycle.

Ours, after multilevel graph partitioners. Nodes are merged in rounds, in pairs; those first that save much traffic for
their size, by w(u, v)^2 / (c(u) c(v)), the rating `expansion*2` of Holtgrewe, Sanders & Schulz (2010). Cycles are kept
out as in acyclic partitioning (Herrmann et al. 2019): nodes have levels that grow along every edge, a round pairs
neighbours of levels 2k and 2k + 1 (or 2k - 1 and 2k), and two pairs never feed each other. So a round offers a node
only some of its neighbours: a node waits for a good one rather than being merged with any.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphs.op_graph import Bools, Floats, Ints
from graphs.order import levels, successors
from graphs.pairs import distinct_pairs

LARGEST = 1.5  # a merged node is at most this times the average size, as long as others can be merged
RELAXED = 1.2  # when there are none, the limit grows by this factor
BOUND = 3.0  # but to at most this times the average where constraints keep nodes apart, even if too many are left
GOOD = 0.5  # a good neighbour is rated at least this share of a node's best
FEW = 0.02  # four rounds that merge less than this share of the nodes merge too few

Pairs = list[tuple[int, int]]


def coarsen(edges: Ints, traffic: Floats, size: Floats, count: int, constraint: Ints | None = None) -> Ints:
    """(nodes,) the merged node of each node: `count` of them, or as many as there are nodes if those are fewer.

    `edges`, (edges, 2), form an acyclic graph; `traffic`, (edges,), is what they carry; `size`, (nodes,), is >= 0.
    Nodes are only merged with those of the same `constraint`, (nodes,), so that more than `count` can be left.
    """
    # Levels along the edges, and the pairs that the four passes of a round look at:
    #
    #     level        0     1     2     3     4
    #     parity 0     o-----o     o-----o     o      pairs of levels (0, 1), (2, 3), ...
    #     parity 1     o     o-----o     o-----o      pairs of levels (1, 2), (3, 4), ...
    #
    # each once with levels counted from the sources, and once from the sinks. After each pass the merged nodes are a
    # new graph, and `label` leads from the nodes of the first graph to those of the latest.
    label = np.arange(len(size))
    dag = _Dag.of(edges, traffic, size, np.zeros(len(size), np.int64) if constraint is None else constraint)
    is_constrained = bool((dag.constraint != dag.constraint[0]).any())
    count = min(count, len(size))
    limit, waits = LARGEST * size.sum() / count, True
    bound = BOUND * size.sum() / count if is_constrained else np.inf
    while len(dag) > count:
        before = len(dag)
        for number in range(4):
            level = levels(dag.edges, len(dag), from_sources=number % 2 == 0)
            dag, label = _after(_neighbours(dag, level, number // 2, limit, waits, len(dag) - count), dag, label)
        if before - len(dag) >= FEW * before:
            waits = True
        elif waits:
            waits = False
        else:
            for from_sources in (True, False) if is_constrained else (True,):
                level = levels(dag.edges, len(dag), from_sources=from_sources)
                dag, label = _after(_siblings(dag, level, limit, len(dag) - count), dag, label)
            if len(dag) == before and limit >= bound:
                break
            limit = min(limit * RELAXED, bound)
    return label


def summed(label: Ints, values: Floats, count: int = 0) -> Floats:
    """(labels,) sum of the values, (n,), that have each label, (n,); `count` labels at least."""
    return np.asarray(np.bincount(label, values, minlength=count), np.float64)


@dataclass(frozen=True, eq=False)
class _Dag:
    """A graph without parallel edges or loops."""

    edges: Ints  # (edges, 2)
    traffic: Floats  # (edges,)
    size: Floats  # (nodes,)
    constraint: Ints  # (nodes,)

    @classmethod
    def of(cls, edges: Ints, traffic: Floats, size: Floats, constraint: Ints) -> _Dag:
        apart = edges[:, 0] != edges[:, 1]
        ends, which = distinct_pairs(edges[apart])
        return cls(ends, summed(which, traffic[apart], len(ends)), size, constraint)

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def rating(self) -> Floats:
        """(edges,) how much a merger of its two ends is worth."""
        size = np.maximum(self.size, 1e-9 * self.size.sum())[self.edges]
        rating: Floats = self.traffic**2 / np.maximum(size.prod(axis=1), 1e-300)
        return rating


def _after(pairs: Pairs, dag: _Dag, label: Ints) -> tuple[_Dag, Ints]:
    """Graph and labels after merging disjoint pairs."""
    if not pairs:
        return dag, label
    ends, joined = np.array(pairs), np.arange(len(dag))
    joined[ends] = ends.min(axis=1)[:, None]
    is_kept = joined == np.arange(len(dag))
    joined = (np.cumsum(is_kept) - 1)[joined]
    return _Dag.of(joined[dag.edges], dag.traffic, summed(joined, dag.size), dag.constraint[is_kept]), joined[label]


def _neighbours(dag: _Dag, level: Ints, parity: int, limit: float, waits: bool, most: int) -> Pairs:
    """Disjoint pairs of neighbours to merge, at most `most`, the best first; good ones only, while it waits for those.

    A cycle would have to lead from pair to pair within two adjacent levels. It cannot: of a new pair, either the
    source feeds no other pair, or no other pair feeds the target.
    """
    source, target = dag.edges.T
    adjacent = (level[target] - level[source] == 1) & (level[source] % 2 == parity)
    alike = dag.constraint[source] == dag.constraint[target]
    small = alike & (dag.size[source] + dag.size[target] <= limit)
    chosen = np.flatnonzero(adjacent & small & (_is_good(dag, small) if waits else True))
    best_first = chosen[np.argsort(-dag.rating[chosen], kind="stable")]
    feeds_from, feeds = successors(dag.edges[adjacent], len(dag))
    fed_from, fed_by = successors(dag.edges[adjacent, ::-1], len(dag))
    taken, feeds_pair, fed_by_pair = ([False] * len(dag) for _ in range(3))
    pairs: Pairs = []
    for u, v in zip(source[best_first].tolist(), target[best_first].tolist(), strict=True):
        if taken[u] or taken[v] or (feeds_pair[u] and fed_by_pair[v]):
            continue
        if len(pairs) == most:
            break
        pairs.append((u, v))
        taken[u] = taken[v] = True
        for node in fed_by[fed_from[v] : fed_from[v + 1]]:
            feeds_pair[node] = True
        for node in feeds[feeds_from[u] : feeds_from[u + 1]]:
            fed_by_pair[node] = True
    return pairs


def _is_good(dag: _Dag, allowed: Bools) -> Bools:
    """(edges,) whether an edge is nearly the best of those allowed, at both of its ends."""
    rating = np.where(allowed, dag.rating, 0.0)
    best = np.zeros(len(dag))
    for end in dag.edges.T:
        np.maximum.at(best, end, rating)
    enough: Bools = rating[:, None] >= GOOD * best[dag.edges]
    return enough[:, 0] & enough[:, 1]


def _siblings(dag: _Dag, level: Ints, limit: float, most: int) -> Pairs:
    """Disjoint pairs within a level, at most `most`: those that exchange most with the same node, then the smallest.

    No path joins nodes of one level, so that merging them makes no cycle.
    """
    nearest = np.full(len(dag), -1)
    source, target = dag.edges[np.argsort(dag.traffic, kind="stable")].T
    nearest[source], nearest[target] = target, source
    order = np.lexsort((dag.size, nearest, dag.constraint, level))
    one, other = order[:-1], order[1:]
    alike = (level[one] == level[other]) & (dag.constraint[one] == dag.constraint[other])
    fits = (alike & (dag.size[one] + dag.size[other] <= limit)).tolist()
    pairs: Pairs = []
    position = 0
    while position < len(fits) and len(pairs) < most:
        if fits[position]:
            pairs.append((int(one[position]), int(other[position])))
        position += 2 if fits[position] else 1
    return pairs
