"""Simulated annealing from the best cheap placement (Kirkpatrick et al. 1983): the rival to beat.

With a trained policy the walk begins at the policy's placement, if that is better than what the cheap placers say.

The energy of a placement is the log of its step time, or of the seconds of another objective, so that temperatures
mean the same for every problem; memory that overflows adds more than any seconds can make up for. Moves and
temperatures are our choice, tuned on recurrent, convolutional and attention-like graphs for 100 to 20,000 simulations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.objectives import evaluator_of
from envs.placer_result import PlacerResult
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.learned.load import placer_of
from placers.search.evaluations import Evaluations
from placers.search.moves import Moves
from placers.search.search import State, check_limits, searched
from placers.search.starts import starts

LARGE = 10_000  # ops of a graph that takes long enough to simulate for two threads to be worth while


@dataclass(frozen=True)
class Annealing(Named):
    """Many small changes, kept if they help, or by chance while it is hot."""

    hot: float = 0.002
    """First temperature: the relative slowdown that is accepted with probability 1/e."""
    cold: float = 0.0002
    """Last temperature."""
    seconds: float = float("inf")
    """A limit of time, in addition to that of simulations."""
    file: str = ""
    """Where to save the search when it ends or is stopped, and to resume it from."""
    policy: str = ""
    """A learned placer whose placement joins the starts: `default`, a trained one's folder, or a spec without knobs."""

    def __post_init__(self) -> None:
        if not 0 < self.cold <= self.hot:
            raise InputError(f"annealing: expected 0 < cold <= hot, got cold={self.cold}, hot={self.hot}")
        check_limits("annealing", self.seconds)
        _ = self.learned  # refused here if it does not exist, not after a model was captured for it

    @cached_property
    def learned(self) -> Placer | None:
        """What `policy` names."""
        return placer_of(self.policy) if self.policy else None

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The best placement seen in exactly `budget` simulations; with none, the policy's greedy one, or HEFT's.

        The first simulations compare what the policy and the cheap placers say, as far as they go.
        """
        return searched(
            lambda: AnnealingSearch(problem, self, seed, budget), problem,
            name=self.name, seed=seed, budget=budget, seconds=self.seconds, file=self.file,
        )  # fmt: skip


build = Annealing


class AnnealingSearch:
    """A placement that changes step by step.

    On large graphs two changes are tried at once, on two threads; the second counts only if the first is refused, as
    nearly all are.
    """

    def __init__(self, problem: Problem, settings: Annealing, seed: int, budget: int) -> None:
        """Simulates the starts, and begins at the best of them."""
        evaluator = evaluator_of(problem)
        self.generator = np.random.default_rng(seed)
        self._settings = settings
        self._moves = Moves(problem, self.generator)
        self._at_once = 2 if len(problem.graph) > LARGE else 1
        first, spent, self.notes = starts(problem, budget, seed, settings.learned)
        self.evaluations = Evaluations(evaluator, first[0])
        self.evaluations.simulations = spent
        if budget > spent:
            self.evaluations.energies(first[: budget - spent])
        self.current, self.energy = self.evaluations.best, self.evaluations.incumbent.value

    def step(self, progress: float, left: int) -> None:
        """Try a change, or two."""
        temperature = self._settings.hot * (self._settings.cold / self._settings.hot) ** progress
        proposals = np.array([self._moves.propose(self.current) for _ in range(min(self._at_once, left))])
        acceptable = self.energy + temperature * self.generator.exponential(size=len(proposals))  # Metropolis
        found = self.evaluations.energies_below(proposals, acceptable, self._at_once)
        accepted = np.flatnonzero(np.isfinite(found))
        if len(accepted):
            self.current, self.energy = proposals[accepted[0]], float(found[accepted[0]])

    def state(self) -> State:
        """The placement and its energy."""
        return {"current": self.current, "energy": np.array(self.energy)}

    def restore(self, state: State) -> None:
        """Continue from them."""
        self.current, self.energy = state["current"].astype(np.int64), float(state["energy"])
