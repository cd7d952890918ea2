"""Round robin: units go to one device after the other, in topological order."""

from dataclasses import dataclass

import numpy as np

from envs.plans.placer_result import PlacerResult
from graphs.foundation.by_name import Named
from graphs.problem import Problem


@dataclass(frozen=True)
class RoundRobin(Named):
    """The i-th unit goes to device i modulo the number of devices: counts are balanced, transfers are ignored."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002 - nothing to search
        """Nothing is random and nothing is simulated."""
        position = np.argsort(problem.units.order)
        return PlacerResult.of_units(problem, position % len(problem.cluster), self.name, seed)


build = RoundRobin
