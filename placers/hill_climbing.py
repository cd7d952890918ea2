"""Hill climbing from random placements: a change is kept if it is no worse, and a climb that stalls starts again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.objectives import evaluator_of
from envs.placer_result import PlacerResult
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.search.evaluations import Evaluations
from placers.search.moves import Moves, random_placements
from placers.search.search import State, check_limits, searched


@dataclass(frozen=True)
class HillClimbing(Named):
    """What annealing is without temperature, and without a good start."""

    patience: int = 500
    """Changes in vain after which a new climb begins."""
    seconds: float = float("inf")
    """A limit of time, in addition to that of simulations."""
    file: str = ""
    """Where to save the search when it ends or is stopped, and to resume it from."""

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise InputError(f"hill_climbing: patience is {self.patience}; expected at least 1")
        check_limits("hill_climbing", self.seconds)

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The best placement seen in exactly `budget` simulations; with none, a random one."""
        return searched(
            lambda: HillClimbingSearch(problem, self.patience, seed), problem,
            name=self.name, seed=seed, budget=budget, seconds=self.seconds, file=self.file,
        )  # fmt: skip


build = HillClimbing


class HillClimbingSearch:
    """A placement that gets better, until it no longer does."""

    def __init__(self, problem: Problem, patience: int, seed: int) -> None:
        """Begins with a random placement."""
        evaluator = evaluator_of(problem)
        self.generator = np.random.default_rng(seed)
        self.notes: tuple[str, ...] = ()
        self._problem, self._patience = problem, patience
        self._moves = Moves(problem, self.generator)
        self.current = self._anywhere()
        self.energy, self.in_vain = np.inf, 0
        self.evaluations = Evaluations(evaluator, self.current)

    def step(self, progress: float, left: int) -> None:  # noqa: ARG002 - always one simulation
        """Try a change, or begin again."""
        begins = not np.isfinite(self.energy) or self.in_vain >= self._patience
        if begins and self.evaluations.simulations:
            self.current = self._anywhere()
        proposal = self.current if begins else self._moves.propose(self.current)
        found = float(self.evaluations.energies(proposal[None])[0])
        self.in_vain = 0 if begins or found < self.energy else self.in_vain + 1
        if begins or found <= self.energy:
            self.current, self.energy = proposal, found

    def _anywhere(self) -> Ints:
        drawn: Ints = random_placements(self._problem, self.generator, 1)[0]
        return drawn

    def state(self) -> State:
        """The placement, its energy, and for how long it got no better."""
        return {"current": self.current, "energy": np.array(self.energy), "in_vain": np.array(self.in_vain)}

    def restore(self, state: State) -> None:
        """Continue from them."""
        self.current, self.energy = state["current"].astype(np.int64), float(state["energy"])
        self.in_vain = int(state["in_vain"])
