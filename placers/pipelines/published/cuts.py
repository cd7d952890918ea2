"""Cuts: where the stages of a pipeline may end, in a chain of layers or in a graph that branches.

    chain      a | b | c             between any two layers
    branches   a -> b -> c, a -> d   after {a}, {a, b}, {c, a}, {b, d}, ...: what is sent on is what these put out

In a graph that branches, a cut is an antichain: layers that do not follow each other, with those before them that
layers of other branches still read. From one cut to the next a layer gives way to one that reads it. These are fewer
than all sets of layers that hold their own inputs, and they are those of PipeDream's released optimizer
(github.com/msr-fiddle/pipedream, `graph.py`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import networkx as nx
import numpy as np

from envs.pipelines.layers import Layers
from graphs.algorithms.pairs import distinct_pairs
from graphs.op_graph import Bools, Floats, Ints, Phase
from graphs.problem import Problem

MOST_CUTS = 400  # ours: the optimizer takes the cube of them; beyond that a graph is taken as a chain

Antichain = tuple[int, ...]  # layers, sorted


@dataclass(frozen=True, eq=False)
class Cuts:
    """All cuts, in an order in which none follows a later one. Sums are over all layers before each cut.

    Costs are those of one mini-batch on one device.
    """

    before: Bools  # (cuts, layers) whether each layer is before each cut
    seconds: Floats  # (cuts,) forward, backward and update
    weight_bytes: Floats  # (cuts,) of gradients
    held_bytes: Floats  # (cuts,) weights, gradients and optimizer state
    kept_bytes: Floats  # (cuts,) activations that wait for the backward pass
    sent_bytes: Floats  # (cuts,) what is sent on there
    comes_before: Bools  # (cuts, cuts) whether stages may end at the first, and later at the second

    def __len__(self) -> int:
        return len(self.seconds)

    @classmethod
    def of_chain(cls, layers: Layers, mini_batches: int) -> Cuts:
        """After every layer."""
        count = len(layers)
        sent = np.maximum(layers.sent, layers.returned) / mini_batches
        before, later = np.tri(count, dtype=np.bool_), np.ascontiguousarray(np.tri(count, k=-1, dtype=np.bool_).T)
        return cls._of(layers, mini_batches, before, sent, later)

    @classmethod
    def of_branches(cls, problem: Problem, layers: Layers, mini_batches: int, most: int = MOST_CUTS) -> Cuts | None:
        """Antichains of a problem's layers; None if there are more than `most`, or if they do not reach all layers."""
        edges, sent = _outputs(problem, layers)
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(range(len(layers)))
        graph.add_edges_from(edges.tolist())
        steps = _Antichains(graph).steps(most)
        if steps is None:
            return None
        order = list(nx.topological_sort(steps))
        before = np.zeros((len(order), len(layers)), np.bool_)
        for number, antichain in enumerate(order):
            before[number, list(set(antichain).union(*(nx.ancestors(graph, layer) for layer in antichain)))] = True
        if not before[-1].all():
            return None
        across = np.array([sent[list(antichain)].sum() for antichain in order]) / mini_batches
        return cls._of(layers, mini_batches, before, across, _comes_before(steps, order))

    @classmethod
    def _of(cls, layers: Layers, mini_batches: int, before: Bools, sent: Floats, comes_before: Bools) -> Cuts:
        seconds = (layers.forward + layers.backward) / mini_batches
        seconds = seconds + layers.forward_fixed + layers.backward_fixed + layers.update
        return cls(
            before, before @ seconds, before @ layers.weights, before @ layers.held,
            before @ layers.kept / mini_batches, sent, comes_before,
        )  # fmt: skip


def _outputs(problem: Problem, layers: Layers) -> tuple[Ints, Floats]:
    """(pairs, 2) layers of which the second reads the first one forward; (layers,) bytes that each puts out so."""
    graph = problem.graph
    forward = (graph.phase[graph.edges] == Phase.FORWARD).all(axis=1) & ~graph.control
    of_op = layers.of_unit[graph.units]
    between = of_op[graph.edges]
    crossing = np.flatnonzero(forward & (between[:, 0] != between[:, 1]))
    outputs, first = np.unique(graph.edge_output[crossing], return_index=True)
    sent = np.bincount(between[crossing[first], 0], graph.moved_bytes[outputs], len(layers))
    return distinct_pairs(between[crossing])[0], sent.astype(np.float64)


def _comes_before(steps: nx.DiGraph[Antichain], order: list[Antichain]) -> Bools:
    index = {antichain: position for position, antichain in enumerate(order)}
    found = np.zeros((len(order), len(order)), np.bool_)
    for antichain in order:
        mine = index[antichain]
        for earlier in steps.predecessors(antichain):
            found[:, mine] |= found[:, index[earlier]]
            found[index[earlier], mine] = True
    return found


class _Antichains:
    """Walks from the first layer to the last."""

    def __init__(self, graph: nx.DiGraph[int]) -> None:
        self.graph = graph
        self.before = {layer: nx.ancestors(graph, layer) for layer in graph}
        self.after = {layer: nx.descendants(graph, layer) for layer in graph}

    def steps(self, most: int) -> nx.DiGraph[Antichain] | None:
        """Every antichain, and an edge to each that follows; None if there are more than `most`."""
        first = min(layer for layer in self.graph if not self.graph.in_degree(layer))
        found: nx.DiGraph[Antichain] = nx.DiGraph()
        found.add_node(self._augmented([first]))
        waiting = deque(found.nodes)
        while waiting and len(found) <= most:
            antichain = waiting.popleft()
            for following in self._following(antichain):
                if following not in found:
                    waiting.append(following)
                found.add_edge(antichain, following)
        return found if len(found) <= most else None

    def _augmented(self, antichain: list[int]) -> Antichain:
        """With the layers before it that others than those before it read."""
        extra = {
            earlier
            for layer in antichain
            for earlier in self.before[layer]
            if any(reader != layer and reader not in self.before[layer] for reader in self.graph.successors(earlier))
        }
        return tuple(sorted(extra | set(antichain)))

    def _following(self, augmented: Antichain) -> list[Antichain]:
        found = []
        for old in augmented:
            for new in self.graph.successors(old):
                if new not in augmented and not self.after[new] & set(augmented):
                    replaced = {new if layer == old else layer for layer in augmented}
                    found.append(self._augmented([layer for layer in replaced if not self.after[layer] & replaced]))
        return found
