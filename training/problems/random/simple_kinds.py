"""Kinds of graphs of textbooks: chains, trees, forks and joins, series-parallel, layered, in several parts.

Each function makes a shape of `nodes` nodes at most, half as many at least; of eight or more.
"""

import numpy as np

from graphs.algorithms.order import topological_order
from graphs.op_graph import Ints
from training.problems.random.shape import Shape, ShapeDraft

MOST_BRANCHES = 16  # between a fork and its join
MOST_PARTS = 8
READS = 3  # of the layer before, at most


def chain(rng: np.random.Generator, nodes: int) -> Shape:
    """Each node reads the one before; roles may repeat with a period, as layers do."""
    draft, period = ShapeDraft(), int(rng.integers(1, 7))
    for i in range(nodes):
        draft.add([i - 1] if i else [], role=i % period, weight=i)
    return draft.shape(nodes)


def tree(rng: np.random.Generator, nodes: int) -> Shape:
    """Each node but the root has one parent that it reads, or that reads it: an out-tree or an in-tree."""
    node = np.arange(1, nodes)
    width = int(rng.integers(1, 5))
    parent = [
        rng.integers(0, node),  # recursive: bushy, of logarithmic depth
        (node - 1) // (width + 1),  # complete, with `width` children
        np.maximum(node - 1 - rng.geometric(1 / width, len(node)) // 2, 0),  # deep
    ][rng.integers(3)]
    edges = np.stack([parent, node], axis=1)
    if rng.random() < 0.5:
        edges = nodes - 1 - edges[::-1, ::-1]  # the same upside down
    return _own_weights(edges, nodes)


def fan(rng: np.random.Generator, nodes: int) -> Shape:
    """Forks and joins, one after the other: o-<(chains of some length)>-o-<...>-o."""
    branches = int(rng.integers(2, min(MOST_BRANCHES, nodes - 2) + 1))
    longest = (nodes - 2) // branches
    length = min(int(rng.geometric(1 / (1 + longest**0.5))), longest)
    is_even, draft = rng.random() < 0.5, ShapeDraft()
    tip = draft.add(weight="first")
    for round_ in range((nodes - 1) // (branches * length + 1)):
        lengths = np.full(branches, length) if is_even else _split(rng, branches * length, branches)
        ends = []
        for branch, steps in enumerate(lengths.tolist()):
            end = tip
            for step in range(steps):
                end = draft.add([end], role=1 + step % 4, weight=(round_, branch, step))
            ends.append(end)
        tip = draft.add(ends, role=5, weight=(round_, "join"))
    return draft.shape(nodes)


def series_parallel(rng: np.random.Generator, nodes: int) -> Shape:
    """An edge grows: again and again one is divided by a node, or gets a path with a node next to it."""
    ends, series = [(0, 1)], rng.uniform(0.3, 0.8)
    for node in range(2, nodes):
        i = int(rng.integers(len(ends)))
        source, target = ends[i]
        if rng.random() < series:
            ends[i] = ends[-1]
            ends.pop()
        ends += [(source, node), (node, target)]
    edges = np.unique(np.array(ends, np.int64), axis=0)
    number = np.empty(nodes, np.int64)
    number[topological_order(edges, nodes)] = np.arange(nodes)
    return _own_weights(number[edges], nodes)


def layered(rng: np.random.Generator, nodes: int) -> Shape:
    """Layers of some nodes, each of which reads some of the layer before and, rarely, of the one before that."""
    widest = int(np.exp(rng.uniform(np.log(2), np.log(max(nodes / 3, 3)))))
    reads, skips, draft = int(rng.integers(1, READS + 1)), rng.choice([0.0, 0.2]), ShapeDraft()
    before, previous = list[int](), list[int]()
    while len(draft) < nodes:
        layer = []
        for _ in range(rng.integers(max(widest // 2, 1), widest + 1)):
            count = min(int(rng.integers(1, reads + 1)), len(previous))
            read = rng.choice(previous, count, replace=False).tolist() if previous else []
            if before and rng.random() < skips:
                read.append(int(rng.choice(before)))
            layer.append(draft.add(read, role=len(read), weight=len(draft)))
        before, previous = previous, layer
    return draft.shape(nodes)


def components(rng: np.random.Generator, nodes: int) -> Shape:
    """Several parts without any edge between them, of like or unlike sizes, or several times the same part."""
    parts = int(rng.integers(2, min(MOST_PARTS, nodes // 3) + 1))
    is_repeated = rng.random() < 0.4
    sizes = np.full(parts, nodes // parts) if is_repeated else _split(rng, nodes, parts)
    found, start = list[Ints](), 0
    for part, size in enumerate(sizes.tolist()):
        if not (is_repeated and part):
            edges = _local(rng, size)
        found.append(edges + start)
        start += size
    return _own_weights(np.concatenate(found), start)


def _local(rng: np.random.Generator, nodes: int) -> Ints:
    """(edges, 2) of a connected part, each node of which reads one to three of the few before it."""
    window, reads = int(rng.integers(2, 9)), int(rng.integers(1, READS + 1))
    edges = [
        (source, node)
        for node in range(1, nodes)
        for source in set(rng.integers(max(node - window, 0), node, rng.integers(1, reads + 1)).tolist())
    ]
    return np.array(edges, np.int64).reshape(-1, 2)


def _split(rng: np.random.Generator, total: int, parts: int) -> Ints:
    """(parts,) numbers of at least 1 that add up to the total, all such splits being equally likely."""
    cuts = np.sort(rng.choice(np.arange(1, total), parts - 1, replace=False))
    return np.diff(np.concatenate([[0], cuts, [total]]))


def _own_weights(edges: Ints, nodes: int) -> Shape:
    """A shape whose nodes have a weight each, and the number of nodes that they read as their role, to 3."""
    order = np.lexsort((edges[:, 0], edges[:, 1]))
    read = np.bincount(edges[:, 1], minlength=nodes)
    return Shape(edges[order], np.minimum(read, READS), np.arange(nodes))
