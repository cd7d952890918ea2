"""Units dealt out in turn, in topological order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.placer_result import PlacerResult
from graphs.foundation.by_name import Named
from graphs.problem import Problem


@dataclass(frozen=True)
class RoundRobin(Named):
    """The i-th unit goes to device i modulo the number of devices: balanced counts, and no care for transfers."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002 - nothing to search
        """Deal out the units; nothing is random and nothing is simulated."""
        placement = np.empty(problem.graph.num_units, np.int64)
        placement[problem.units.order] = np.arange(len(placement)) % len(problem.cluster)
        return PlacerResult.of_units(problem, placement, self.name, seed)


build = RoundRobin
