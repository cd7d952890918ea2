"""Reference: states of a layer profile, where PipeDream's optimizer may end a stage of the pipeline.

A state is an antichain: layers that do not follow each other, with those before them that layers of other branches
still read. From one state to the next a layer gives way to one that reads it. These are fewer than all sets of layers
that hold their own inputs, and they are those of the released optimizer (github.com/msr-fiddle/pipedream, `graph.py`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import networkx as nx
import numpy as np

from graphs.formats.pipedream import LayerProfile, ProfiledLayer
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats

MOST_STATES = 3_000

Antichain = tuple[str, ...]  # ids of layers, sorted


@dataclass(frozen=True, eq=False)
class States:
    """All states, in a topological order of the steps between them; sums are over a state's layers and all before."""

    antichains: tuple[Antichain, ...]  # (states,)
    seconds: Floats  # (states,) forward and backward
    activation_bytes: Floats  # (states,)
    parameter_bytes: Floats  # (states,)
    output_bytes: Floats  # (states,) of the antichain
    comes_before: Bools  # (states, states) whether steps lead from the first to the second

    def __len__(self) -> int:
        return len(self.antichains)


def states_of(profile: LayerProfile) -> States:
    """The states of a profile, without its inputs and without items of outputs that nobody reads.

    Raises InputError for a cycle, or for more than 3,000 states.
    """
    layers, graph = _without_loose_ends(profile)
    steps = _Antichains(graph, profile.name).steps()
    order = list(nx.topological_sort(steps))
    index = {antichain: position for position, antichain in enumerate(order)}
    before = np.zeros((len(order), len(order)), np.bool_)
    for antichain in order:
        mine = index[antichain]
        for earlier in steps.predecessors(antichain):
            before[:, mine] |= before[:, index[earlier]]
            before[index[earlier], mine] = True
    reached = [set(antichain).union(*(nx.ancestors(graph, i) for i in antichain)) for antichain in order]

    def totals(value: dict[str, float], sets: list[set[str]]) -> Floats:
        return np.array([sum(value[layer.id] for layer in layers if layer.id in each) for each in sets])

    activation = {layer.id: float(sum(layer.activation_bytes)) for layer in layers}
    return States(
        tuple(order),
        totals({layer.id: layer.forward_seconds + layer.backward_seconds for layer in layers}, reached),
        totals(activation, reached),
        totals({layer.id: layer.parameter_bytes for layer in layers}, reached),
        totals(activation, [set(antichain) for antichain in order]),
        before,
    )


def _without_loose_ends(profile: LayerProfile) -> tuple[list[ProfiledLayer], nx.DiGraph[str]]:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(layer.id for layer in profile.layers)
    graph.add_edges_from(profile.edges)
    if not nx.is_directed_acyclic_graph(graph):
        raise InputError(f"profile {profile.name!r} is cyclic")
    inputs = [layer.id for layer in profile.layers if layer.what.startswith("Input") and not graph.in_degree(layer.id)]
    graph.remove_nodes_from(inputs)
    items = [layer.id for layer in profile.layers if layer.what.startswith("__getitem__") and layer.id in graph]
    graph.remove_nodes_from([item for item in items if not graph.out_degree(item)])
    layers = [layer for layer in profile.layers if layer.id in graph]
    if not layers:
        raise InputError(f"profile {profile.name!r} holds nothing but inputs")
    return layers, graph


class _Antichains:
    """Walks from the first layer to the last."""

    def __init__(self, graph: nx.DiGraph[str], name: str) -> None:
        self.graph, self.name = graph, name
        self.before = {layer: nx.ancestors(graph, layer) for layer in graph}
        self.after = {layer: nx.descendants(graph, layer) for layer in graph}

    def steps(self) -> nx.DiGraph[Antichain]:
        """Every state, and an edge to each that follows."""
        first = next(layer for layer in self.graph if not self.graph.in_degree(layer))
        found: nx.DiGraph[Antichain] = nx.DiGraph()
        found.add_node(self._augmented([first]))
        waiting, seen = deque(found.nodes), set(found.nodes)
        while waiting:
            antichain = waiting.popleft()
            for following in self._following(antichain):
                found.add_edge(antichain, following)
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
            if len(seen) > MOST_STATES:
                raise InputError(f"profile {self.name!r} branches into more than {MOST_STATES:,} states")
        return found

    def _augmented(self, antichain: list[str]) -> Antichain:
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
