"""What an engineer would do: the layers of a network split evenly over the devices, in order.

The rules are those of the papers' expert baselines (Placeto, GDP): the layers of a recurrent net or a Transformer are
split evenly over the devices in order, the embedding with the first and the head with the last; a net with branches or
convolutions stays on one device if it fits, else it is cut in order in proportion to the memory; anything else is cut
in order into pieces that take equally long. CPUs are used only if there is nothing else. A layer is recognised by its
name: `blocks.2` in "blocks.2.branches.1/conv", a number in a container with several. What is split is so over all
devices, though fewer may be faster.
"""

from dataclasses import dataclass

import numpy as np

from envs.costs.costs import unit_seconds
from envs.plans.placer_result import PlacerResult
from envs.simulation.held_memory import HeldMemory
from envs.simulation.simulator import Simulator
from graphs.foundation.by_name import Named
from graphs.op_graph import Floats, Ints, OpGraph
from graphs.op_groups.layer_names import path, unit_layers
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


def in_order(order: Ints, weights: Floats, shares: Floats) -> Ints:
    """(units,) contiguous pieces of an order (units,) whose weights are proportional to the shares (pieces,)."""
    weight = weights[order] if weights.any() else np.ones(len(order))
    middle = (np.cumsum(weight) - weight / 2) / weight.sum()
    pieces = np.empty(len(order), np.int64)
    pieces[order] = np.minimum(np.searchsorted(np.cumsum(shares) / shares.sum(), middle), len(shares) - 1)
    return pieces


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
