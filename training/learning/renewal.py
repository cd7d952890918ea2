"""The random problems that PPO holds, among all that it meets: made when they are first drawn, dropped when renewed."""

from collections.abc import Callable
from typing import Generic

import numpy as np

from envs.prepared_problem import PreparedProblem
from graphs.problem import Problem
from placers.learned.policy import View
from training.learning.rollouts import PpoProblem
from training.problems.random.renewed import RenewedProblems


class RenewedPool(Generic[View]):
    """Those of `RenewedProblems` that are held at a time, as PPO needs them: every `shards`th, from `first` on."""

    def __init__(
        self, source: RenewedProblems, see: Callable[[Problem], View], first: int = 0, shards: int = 1
    ) -> None:
        self.source = source
        self._see = see
        self._first, self._shards = first, shards
        self._held: dict[int, PpoProblem[View]] = {}

    def at(self, number: int) -> PpoProblem[View]:
        """A problem by its number, with what has been found out about it since it was first drawn."""
        if number not in self._held:
            self._held[number] = PpoProblem(PreparedProblem(self.source.problem(number)), self._see)
        return self._held[number]

    def drawn(self, chooser: np.random.Generator, count: int, updates: int) -> list[PpoProblem[View]]:
        """Some of the problems that are held after a number of updates, or all if there are no more."""
        held = self.source.held(updates)
        for number in [number for number in self._held if number not in held]:
            del self._held[number]
        own = held[(self._first - held.start) % self._shards :: self._shards]
        return [self.at(int(i)) for i in chooser.choice(own, min(count, len(own)), replace=False)]

    def known(self) -> dict[int, PpoProblem[View]]:
        """By number, the problems that were drawn and not renewed since."""
        return dict(sorted(self._held.items()))
