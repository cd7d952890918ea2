"""PipeDream's partition (Narayanan et al. 2019) without replicas: contiguous stages with the least bottleneck.

Units are taken in topological order. A stage takes the time of its units on its device, or twice that of the bytes
that enter it if they take longer to send; it must hold no more than its device can, if there is such a partition.
Stages are on the devices in their order; some devices may stay empty.

Where the objective is of samples that follow one another, as max-load is, it is the baseline of that name in "Efficient
Algorithms for Device Placement of DNN Graph Operators" (Tarnawski et al., NeurIPS 2020): branches are joined until the
graph is nearly a path, and the path is split with the least largest load.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.costs.costs import costs_of, unit_seconds
from envs.held_memory import HeldMemory
from envs.objectives import is_pipelined
from envs.placer_result import PlacerResult
from graphs.foundation.by_name import Named
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from graphs.units import Units
from placers.stages.branches import without_branches
from placers.stages.chain import least_bottleneck
from placers.stages.contracted_graph import ContractedGraph
from placers.stages.split import best_within_memory


@dataclass(frozen=True)
class PipeDream(Named):
    """A pipeline without copies of its stages."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002 - nothing to search
        """Without any simulation."""
        if is_pipelined(problem):
            return PlacerResult.of_units(problem, _along_a_path(problem), self.name, seed)
        units = problem.units
        held = HeldMemory.of(problem)
        seconds, memory = unit_seconds(problem)[units.order], held.per_unit[units.order]
        entering = _bytes_across(units)
        apart = ~np.eye(len(problem.cluster), dtype=np.bool_)
        bandwidth = float(problem.cluster.bandwidth[apart].mean()) if apart.any() else np.inf
        stages = least_bottleneck(seconds, 2 * entering / bandwidth, memory, held.limits)
        if stages is None:
            stages = least_bottleneck(seconds, 2 * entering / bandwidth, memory, np.full(len(held.limits), np.inf))
        assert stages is not None  # without limits there is always a partition
        return PlacerResult.of_units(problem, stages[np.argsort(units.order)], self.name, seed)


build = PipeDream


def _along_a_path(problem: Problem) -> Ints:
    """(units,) devices: the split with the least max-load of the graph without its branches."""
    costs = costs_of(problem)
    contracted = ContractedGraph.of(problem, costs, without_branches(problem, costs))
    return best_within_memory(contracted, placer="pipedream")[contracted.node_of_unit]


def _bytes_across(units: Units) -> Floats:
    """(units,) bytes that pass between the units before each in the order and the others."""
    first, last = np.sort(np.argsort(units.order)[units.links], axis=1).T  # of each link, the positions of its ends
    change = np.zeros(len(units) + 1)
    np.add.at(change, first + 1, units.link_bytes)
    np.add.at(change, last + 1, -units.link_bytes)
    across: Floats = np.cumsum(change)[: len(units)]
    return across
