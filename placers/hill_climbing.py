"""Hill climbing from random placements: a change is kept if it is no worse; after many in vain, it starts again.

Of a model that runs already (the objective `replacement`) it begins once, at the best of
`placers.search.running_starts`: in some milliseconds a policy finds no more, as `docs/replacement.md` shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.search.evaluations import Evaluations
from placers.search.local_search import LocalSearch
from placers.search.metropolis import CoolingSchedule
from placers.search.moves import random_placements
from placers.search.running_starts import running_starts
from placers.search.search import SearchPlacer
from placers.search.starts import baseline

NEVER = 2**62  # simulations in vain
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

    def begin(self, problem: Problem, seed: int, budget: int) -> HillClimbingSearch:
        """It begins with a random placement, or the first of the running starts; that is returned unsimulated.

        The first simulation of a problem of many units is of METIS's plan: what it finds is not to be behind that.
        """
        search = HillClimbingSearch(problem, self, seed, running_starts(problem))
        if budget > 0:
            known = baseline(problem, seed, self.seconds)
            search.evaluations.energies(known.placements)
            search.notes += known.notes
        return search


build = HillClimbing


class HillClimbingSearch(LocalSearch):
    """A local search that keeps no change for the worse, and starts again where it no longer finds any other."""

    saved: tuple[str, ...] = ("current", "priorities", "energy", "in_vain", "critical")

    def __init__(self, problem: Problem, settings: HillClimbing, seed: int, starts: Ints) -> None:
        """Begins with the best of some starts, (starts, units), and never again, or without any with random ones."""
        generator = np.random.default_rng(seed)
        self.notes: tuple[str, ...] = ()
        self._patience = NEVER if len(starts) else settings.patience
        self._schedule = CoolingSchedule(patience=self._patience, reorder=REORDER if settings.order else 0.0)
        self._starts = starts if len(starts) else random_placements(problem, generator, 1)
        super().__init__(problem, generator, Evaluations(problem, self._starts[0]))
        self._rule = self.priorities  # what it starts with again

    def step(self, elapsed: float, left: int) -> None:  # noqa: ARG002 - it has no temperature
        """Try changes, or start again."""
        if not np.isfinite(self.energy):
            starts = self._starts[:left]
            energies = self.evaluations.energies(starts)
            self.current, self.energy, self.in_vain = starts[energies.argmin()], float(energies.min()), 0
        elif self.in_vain < self._patience:
            self.take_steps(self._schedule, left)
        else:
            self.begin_again(self._rule)
