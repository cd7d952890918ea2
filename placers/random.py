"""Placements drawn at random: every unit's device is uniform over those where it may run."""

import math
import time
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from envs.plans.placer_result import PlacerResult
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.search.evaluations import Evaluations
from placers.search.moves import random_placements

BATCH = 256  # placements held in memory at once


@dataclass(frozen=True)
class Random(Named):
    """One random placement, or the best of as many as the budget allows."""

    seconds: float = math.inf
    """A limit of processor seconds, in addition to that of simulations."""

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise InputError(f"random: seconds is {self.seconds}; expected a number > 0")

    def within(self, seconds: float) -> Self:
        """As `placers.contract.time_limit.Stoppable.within`."""
        return replace(self, seconds=seconds)

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """With a budget of one, a draw that is not simulated; else the best of `budget`, or of all in the time."""
        started, generator = time.process_time(), np.random.default_rng(seed)
        evaluations = Evaluations(problem, random_placements(problem, generator, 1)[0])
        while budget > 1 and (left := budget - evaluations.simulations) > 0:
            if time.process_time() - started >= self.seconds:
                break
            evaluations.energies(random_placements(problem, generator, min(left, BATCH)))
        return PlacerResult.of_units(
            problem, evaluations.best, self.name, seed, simulations=evaluations.simulations, curve=evaluations.curve
        )


build = Random
