"""Random problems that are renewed while a policy learns from them: always the same ones for the same seed."""

from dataclasses import dataclass

import numpy as np

from graphs.problem import Problem
from graphs.runtime import IDEAL, Runtime
from training.problems.random.random_problem import random_problem
from training.problems.random.settings import World

TRAINED = 1 << 32  # next to a seed, tells the random numbers of problems from those of a trainer


@dataclass(frozen=True)
class RenewedProblems:
    """An endless row of random problems, and which of them a trainer holds after a number of updates.

    problems   0 1 2 3 4 5 6 7 8 ...
    held           [-------]          with 4 at a time, after as many updates as renew 2

    Both follow from the settings and the seed alone, so that a run that is resumed meets the same problems.
    """

    settings: World
    seed: int
    optimizer: str = "adam"
    runtimes: tuple[Runtime, ...] = (IDEAL,)

    def held(self, updates: int) -> range:
        """The numbers of the problems that are held after some updates."""
        renewed = int(updates * self.settings.renewed)
        return range(renewed, renewed + self.settings.problems)

    def problem(self, number: int) -> Problem:
        """A problem by its number."""
        rng = np.random.default_rng((self.seed, TRAINED, number))
        kind = str(rng.choice(self.settings.trained_on))
        return random_problem(self.settings, kind, rng, optimizer=self.optimizer, runtimes=self.runtimes)
