"""ModuleTree: the ops of a graph in their modules, and where each stands among those next to it, from left to right."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphs.algorithms.order import levels
from graphs.op_graph import Floats, Ints, OpGraph, Phase

ROOT = -1
PASSES = {Phase.FORWARD: "forward pass", Phase.BACKWARD: "backward pass", Phase.UPDATE: "update"}
SWEEPS = 4  # over all layers, to bring what is connected together


@dataclass(frozen=True, eq=False)
class ModuleTree:
    """Nodes: first the ops, as in the graph, then modules, each after the one that it is in.

    Of a training step the outermost nodes are the forward pass, the backward pass and the update, since a module has
    ops in all of them.
    """

    graph: OpGraph
    names: tuple[str, ...]  # (nodes,) the last part of the name
    parent: Ints  # (nodes,) module, or ROOT

    @classmethod
    def of(cls, graph: OpGraph) -> ModuleTree:
        """The tree of a graph, by the paths in the names of its ops."""
        number: dict[tuple[str, ...], int] = {}
        parents, module_names, names = list[int](), list[str](), list[str]()
        in_passes = graph.is_training

        def module(path: tuple[str, ...]) -> int:
            if not path:
                return ROOT
            if path not in number:
                outer = module(path[:-1])
                number[path] = len(graph) + len(module_names)
                module_names.append(path[-1])
                parents.append(outer)
            return number[path]

        of_op = list[int]()
        for name, phase in zip(graph.names, graph.phase.tolist(), strict=True):
            path, _, last = name.rpartition("/")
            outermost = (PASSES[Phase(min(phase, Phase.UPDATE))],) if in_passes else ()
            of_op.append(module((*outermost, *(path.split(".") if path else ()))))
            names.append(last)
        return cls(graph, (*names, *module_names), np.array([*of_op, *parents], np.int64))

    def __len__(self) -> int:
        return len(self.parent)

    @cached_property
    def lineage(self) -> Ints:
        """(nodes, depths) the node itself at its depth, the modules that it is in at lower ones, and ROOT at others."""
        chains = [np.arange(len(self))]
        while (chains[-1] != ROOT).any():
            above = np.where(chains[-1] == ROOT, ROOT, self.parent[chains[-1]])
            chains.append(above)
        lineage = np.stack(chains[:-1][::-1], axis=1) if len(chains) > 1 else np.zeros((0, 0), np.int64)
        first = (lineage == ROOT).sum(axis=1)  # how far each chain is to be moved to the left
        columns = first[:, None] + np.arange(lineage.shape[1])
        padded = np.concatenate([lineage, np.full_like(lineage, ROOT)], axis=1)
        moved: Ints = np.take_along_axis(padded, columns, axis=1)
        return moved

    @cached_property
    def siblings(self) -> Ints:
        """(pairs, 2) distinct nodes next to each other with an edge between them or what they hold, first to second."""
        pairs = list[Ints]()
        producer, consumer = self.lineage[self.graph.edges.T]
        for depth in range(self.lineage.shape[1]):
            first, second = producer[:, depth], consumer[:, depth]
            beside = (first != second) & (first != ROOT) & (second != ROOT)
            if depth:
                beside &= producer[:, depth - 1] == consumer[:, depth - 1]
            pairs.append(np.stack([first[beside], second[beside]], axis=1))
        return np.unique(np.concatenate(pairs), axis=0) if pairs else np.zeros((0, 2), np.int64)

    @cached_property
    def begins(self) -> Ints:
        """(nodes,) when each begins in an order of all ops: that of its first op."""
        ops, rank = len(self.graph), self.graph.topological_position
        begins = np.full(len(self), ops)
        for depth in range(self.lineage.shape[1]):
            chain = self.lineage[:ops, depth]
            np.minimum.at(begins, chain[chain != ROOT], rank[chain != ROOT])
        return begins

    @cached_property
    def layers(self) -> Ints:
        """(nodes,) how many of those next to it are before each, along the longest chain.

        Where modules wait for each other in a circle, the one that begins first is before the other.
        """
        first, second = self.siblings.T
        return levels(self.siblings[self.begins[first] < self.begins[second]], len(self))

    @cached_property
    def rows(self) -> Ints:
        """(nodes,) the place of each in its layer, from the top: near those that it is connected to."""
        first, second = self.siblings.T
        group = np.unique(np.stack([self.parent, self.layers]), axis=1, return_inverse=True)[1].reshape(-1)
        rows = _ranked(group, self.begins.astype(np.float64))
        for sweep in range(SWEEPS):
            of, by = (first, second) if sweep % 2 else (second, first)
            total = np.bincount(of, weights=rows[by], minlength=len(self))
            count = np.bincount(of, minlength=len(self))
            rows = _ranked(group, np.where(count > 0, total / np.maximum(count, 1), rows))
        return rows

    @cached_property
    def weight_bytes(self) -> Floats:
        """(nodes,) bytes of the parameters that ops in it use, each parameter once."""
        user, weight = self.graph.weight_uses.T
        size = np.zeros(len(self))
        for depth in range(self.lineage.shape[1]):
            node = self.lineage[user, depth]
            pairs = np.unique(np.stack([node, weight])[:, node != ROOT], axis=1)
            size += np.bincount(pairs[0], weights=self.graph.weights[pairs[1]], minlength=len(self))
        return size

    @cached_property
    def order(self) -> Ints:
        """(nodes,) all nodes, those of a module by layer and row."""
        order: Ints = np.lexsort((self.rows, self.layers, self.parent))
        return order


def _ranked(group: Ints, value: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Ints:
    """(nodes,) the rank of each value in its group, from 0."""
    order = np.lexsort((np.arange(len(group)), value, group))
    count = np.bincount(group)
    ranks = np.empty(len(group), np.int64)
    ranks[order] = np.arange(len(group)) - np.repeat(np.cumsum(count) - count, count)
    return ranks
