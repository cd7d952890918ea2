"""Max-load DP: the contiguous split with the least load of the busiest device (Tarnawski et al., NeurIPS 2020).

It is optimal among splits whose parts are contiguous in the forward pass, for any numbers of accelerators and CPUs,
by the cost model in `envs.simulation.device_loads`, not by the step time that the simulator finds. Where there are too
many ideals, as in wide graphs, it is the paper's heuristic DPL: the best split along one order of the contracted graph.
More devices lower the load, and may make the step longer.
"""

from dataclasses import dataclass

from envs.costs.costs import costs_of
from envs.plans.placer_result import PlacerResult
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.pipelines.cutting.contracted_graph import ContractedGraph
from placers.pipelines.cutting.ideals import Ideals
from placers.pipelines.cutting.split import best_within_memory

BY_REQUEST = True  # takes seconds to a minute, for an objective of its own


@dataclass(frozen=True)
class MaxLoadDP(Named):
    """The dynamic program over ideals, or DPL where there are too many of them."""

    ideals: int = 60_000
    """The most ideals to look at; 0 for DPL."""

    def __post_init__(self) -> None:
        if self.ideals < 0:
            raise InputError(f"max_load_dp: ideals is {self.ideals}; expected a number >= 0")

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002 - nothing to search
        """Without any simulation. If no such split fits the memory, one that would with more of it.

        Raises InputError for a cluster of too many kinds of devices.
        """
        contracted = ContractedGraph.of(problem, costs_of(problem))
        ideals = Ideals.all(len(contracted), contracted.edges, self.ideals) if self.ideals else None
        placement = best_within_memory(contracted, ideals, placer="max_load_dp")
        return PlacerResult.of_units(problem, placement[contracted.node_of_unit], self.name, seed)


build = MaxLoadDP
