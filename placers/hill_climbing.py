"""Hill climbing from random placements: a change is kept if it is no worse; after many in vain, it starts again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.search.evaluations import Evaluations
from placers.search.local_search import LocalSearch
from placers.search.metropolis import CoolingSchedule
from placers.search.moves import random_placements
from placers.search.search import SearchPlacer

REORDER = 0.2  # the share of changes that are of the order


@dataclass(frozen=True)
class HillClimbing(SearchPlacer):
    """What annealing is without temperature, and without a good start."""

    patience: int = 500
    """Changes in vain after which it starts again."""
    order: bool = True
    """Whether it changes the order, too. Under `fifo` there are no priorities to change."""
    seconds: float = float("inf")
    """A limit of processor seconds, in addition to that of simulations."""
    file: str = ""
    """Where to save the search when it ends or is stopped, and to resume it from."""

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise InputError(f"hill_climbing: patience is {self.patience}; expected at least 1")
        super().__post_init__()

    def begin(self, problem: Problem, seed: int, budget: int) -> HillClimbingSearch:  # noqa: ARG002 - starts at random
        """It begins with a random placement, which is returned without any simulation."""
        return HillClimbingSearch(problem, self, seed)


build = HillClimbing


class HillClimbingSearch(LocalSearch):
    """A local search that keeps no change for the worse, and starts again where it no longer finds any other."""

    saved: tuple[str, ...] = ("current", "priorities", "energy", "in_vain")

    def __init__(self, problem: Problem, settings: HillClimbing, seed: int) -> None:
        """Begins with a random placement."""
        generator = np.random.default_rng(seed)
        self.notes: tuple[str, ...] = ()
        self._patience = settings.patience
        self._schedule = CoolingSchedule(patience=settings.patience, reorder=REORDER if settings.order else 0.0)
        first = random_placements(problem, generator, 1)
        super().__init__(problem, generator, Evaluations(problem, first[0]))
        self._rule = self.priorities  # what it starts with again

    def step(self, elapsed: float, left: int) -> None:  # noqa: ARG002 - it has no temperature
        """Try changes, or start again."""
        begins = not np.isfinite(self.energy)
        if not begins and self.in_vain < self._patience:
            self.take_steps(self._schedule, left)
            return
        if not begins:
            self.current, self.priorities = random_placements(self._problem, self.generator, 1)[0], self._rule
        self.energy, self.in_vain = float(self.evaluations.energies(self.current[None])[0]), 0
