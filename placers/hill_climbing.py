"""Hill climbing from random placements: a change is kept if it is no worse; after many in vain, it starts again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.search.evaluations import Evaluations
from placers.search.moves import Moves, random_placements
from placers.search.search import SearchPlacer


@dataclass(frozen=True)
class HillClimbing(SearchPlacer):
    """What annealing is without temperature, and without a good start."""

    patience: int = 500
    """Changes in vain after which it starts again."""
    seconds: float = float("inf")
    """A limit of time, in addition to that of simulations."""
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


class HillClimbingSearch:
    """A placement that gets better, until it no longer does."""

    saved: tuple[str, ...] = ("current", "energy", "in_vain")

    def __init__(self, problem: Problem, settings: HillClimbing, seed: int) -> None:
        """Begins with a random placement."""
        self.generator = np.random.default_rng(seed)
        self.notes: tuple[str, ...] = ()
        self._problem, self._patience = problem, settings.patience
        self._moves = Moves(problem, self.generator)
        self.current: Ints = random_placements(problem, self.generator, 1)[0]
        self.energy, self.in_vain = np.inf, 0
        self.evaluations = Evaluations(problem, self.current)

    def step(self, progress: float, left: int) -> None:  # noqa: ARG002 - always one simulation
        """Try a change, or start again."""
        begins = not np.isfinite(self.energy) or self.in_vain >= self._patience
        if begins and self.evaluations.simulations:
            self.current = random_placements(self._problem, self.generator, 1)[0]
        proposal = self.current if begins else self._moves.propose(self.current)
        found = float(self.evaluations.energies(proposal[None])[0])
        self.in_vain = 0 if begins or found < self.energy else self.in_vain + 1
        if begins or found <= self.energy:
            self.current, self.energy = proposal, found
