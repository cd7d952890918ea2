"""What an engineer would do: the layers of a network split evenly over the devices, in order.

The rules are those of the papers' expert baselines (Placeto, GDP): the layers of a recurrent net or a Transformer are
split evenly over the devices in order, the embedding with the first and the head with the last; a net with branches or
convolutions stays on one device if it fits, else it is cut in order in proportion to the memory; anything else is cut
in order into pieces that take equally long. CPUs are used only if there is nothing else. A layer is recognised by its
name: `blocks.2` in "blocks.2.branches.1/conv", a number in a container with several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from envs.costs.costs import unit_seconds
from envs.held_memory import HeldMemory
from envs.placer_result import PlacerResult
from envs.simulation.simulator import Simulator
from graphs.foundation.by_name import Named
from graphs.op_graph import Floats, Ints, OpGraph, Phase
from graphs.problem import Problem


@dataclass(frozen=True)
class HumanExpert(Named):
    """Layers in order, branches together."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """At most one simulation, to see whether a net with branches fits on one device."""
        simulator = Simulator(problem)
        is_cpu = problem.cluster.is_cpu
        devices = np.flatnonzero(is_cpu if is_cpu.all() else ~is_cpu)
        layers = unit_layers(problem.graph)
        if has_branches(problem.graph):
            placement = _together_or_cut(simulator, devices, budget)
        elif len(layers):
            parts = min(len(devices), int(layers.max()) + 1)
            placement = devices[layers * parts // (int(layers.max()) + 1)]
        else:
            seconds = unit_seconds(problem)[:, devices]
            shares = 1.0 / np.maximum(seconds.sum(axis=0), 1e-30)
            placement = devices[in_order(problem.units.order, seconds.mean(axis=1), shares)]
        return PlacerResult.of_units(problem, placement, self.name, seed, simulations=simulator.simulations)


build = HumanExpert


def has_branches(graph: OpGraph) -> bool:
    """Whether the net is of the Inception kind: mostly convolutions, or with branches by name."""
    convolves = np.array(["conv" in kind for kind in graph.kinds])
    return any("branches" in path(name) for name in graph.names) or 2 * graph.flops[convolves].sum() > graph.flops.sum()


def unit_layers(graph: OpGraph) -> Ints:
    """(units,) the layer of each unit, from 0; empty if the names show no layers.

    A unit's layer is that of its costliest forward op.
    """
    layers = op_layers(graph)
    if len(layers) == 0:
        return layers
    cost = np.where(graph.phase == Phase.FORWARD, graph.flops + graph.bytes_accessed, -1.0)
    by_cost = np.lexsort((-np.arange(len(graph)), cost))
    chosen = np.zeros(graph.num_units, np.int64)
    chosen[graph.units[by_cost]] = layers[by_cost]
    return chosen


def op_layers(graph: OpGraph) -> Ints:
    """(ops,) the layer of each op, numbered in the order of the graph's ops; empty if the names show no layers.

    A forward op outside of the layers belongs to the latest layer that it depends on, else to the earliest that needs
    it; ops of later phases, which follow their forward ops, are left in layer 0 if their names do not show theirs.
    """
    number: dict[tuple[str, ...], int] = {}
    layers = np.array(
        [number.setdefault(key, len(number)) if key else -1 for key in _layer_keys(graph.names)], np.int64
    )
    if not number:
        return layers[:0]
    inputs: list[list[int]] = [[] for _ in range(len(graph))]
    outputs: list[list[int]] = [[] for _ in range(len(graph))]
    for producer, consumer in graph.edges[(graph.phase[graph.edges] == Phase.FORWARD).all(axis=1)].tolist():
        inputs[consumer].append(producer)
        outputs[producer].append(consumer)
    for op in graph.topological_order.tolist():
        if layers[op] < 0:
            layers[op] = max(layers[inputs[op]], default=-1)
    for op in graph.topological_order[::-1].tolist():
        if layers[op] < 0:
            layers[op] = min((layer for layer in layers[outputs[op]] if layer >= 0), default=-1)
    return np.maximum(layers, 0)


def in_order(order: Ints, weights: Floats, shares: Floats) -> Ints:
    """(units,) contiguous pieces of an order (units,) whose weights are proportional to the shares (pieces,)."""
    weight = weights[order] if weights.any() else np.ones(len(order))
    middle = (np.cumsum(weight) - weight / 2) / weight.sum()
    pieces = np.empty(len(order), np.int64)
    pieces[order] = np.minimum(np.searchsorted(np.cumsum(shares) / shares.sum(), middle), len(shares) - 1)
    return pieces


def path(name: str) -> list[str]:
    """The modules in an op's name: "blocks.2.branches.1/conv" -> blocks, 2, branches, 1."""
    return name.rpartition("/")[0].split(".")


def _together_or_cut(simulator: Simulator, devices: Ints, budget: int) -> Ints:
    """Everything on the fastest device if it fits there, else pieces in order in proportion to the memory."""
    problem = simulator.problem
    held = HeldMemory.of(problem)
    fastest = devices[unit_seconds(problem)[:, devices].sum(axis=0).argmin()]
    together = np.full(problem.graph.num_units, fastest)
    fits = simulator.run(together).fits if budget > 0 else held.overflow(together) == 0
    if fits:
        return together
    return devices[in_order(problem.units.order, held.per_unit, held.shares[devices])]


def _layer_keys(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """For each op, the path down to its outermost number in a container that has several; empty without one."""
    paths = [path(name) for name in names]
    children: dict[tuple[str, ...], set[str]] = {}
    for parts in paths:
        for depth in _numbers(parts):
            children.setdefault(tuple(parts[:depth]), set()).add(parts[depth])
    for parts in paths:
        depths = (depth for depth in _numbers(parts) if len(children[tuple(parts[:depth])]) > 1)
        yield tuple(parts[: next(depths, -1) + 1])


def _numbers(parts: list[str]) -> list[int]:
    return [depth for depth, part in enumerate(parts) if part.isdecimal()]
