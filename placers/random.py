"""Placements drawn at random: every unit's device is uniform over those where it may run."""

from dataclasses import dataclass

import numpy as np

from envs.plans.placer_result import PlacerResult
from graphs.foundation.by_name import Named
from graphs.problem import Problem
from placers.search.evaluations import Evaluations
from placers.search.moves import random_placements

BATCH = 256  # placements held in memory at once


@dataclass(frozen=True)
class Random(Named):
    """One random placement, or the best of as many as the budget allows."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """With a budget of one, a draw that is not simulated; else the best of `budget` draws."""
        generator = np.random.default_rng(seed)
        evaluations = Evaluations(problem, random_placements(problem, generator, 1)[0])
        while budget > 1 and (left := budget - evaluations.simulations) > 0:
            evaluations.energies(random_placements(problem, generator, min(left, BATCH)))
        return PlacerResult.of_units(
            problem, evaluations.best, self.name, seed, simulations=evaluations.simulations, curve=evaluations.curve
        )


build = Random
