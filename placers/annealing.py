"""Simulated annealing of placement and order, from the best cheap plan (Kirkpatrick et al. 1983): the rival to beat.

With a trained policy the search begins at the policy's placement, if that is better than those of the cheap placers.

The energy of a placement is the log of its step time, or of the seconds of another objective, so that temperatures
mean the same for every problem; an overflow of memory adds more than any seconds can make up for. Moves and
temperatures are our choice, tuned on recurrent, convolutional and attention-like graphs for 100 to 20,000 simulations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.learned.lookup import placer_of
from placers.search.evaluations import Evaluations
from placers.search.first_fit import begin_where_it_fits
from placers.search.levels import Levels, levels_of
from placers.search.local_search import LocalSearch
from placers.search.metropolis import CoolingSchedule
from placers.search.own_move import OwnMove
from placers.search.search import SearchPlacer
from placers.search.starts import SIMULATION, Starts, starts

TEMPERATURES = 50  # at least, where seconds are the limit: they are looked at between two calls of compiled code
REORDER = 0.9  # the share of the last changes that are of the order


@dataclass(frozen=True)
class Annealing(SearchPlacer):
    """Many small changes, kept if they help, or by chance at high temperatures."""

    hot: float = 0.002
    """First temperature: the relative slowdown that is accepted with probability 1/e."""
    cold: float = 0.0002
    """Last temperature."""
    order: bool = True
    """Whether it changes the order, too. Under `fifo` there are no priorities to change."""
    levels: bool = True
    """Whether it moves groups of units first, the largest to begin with, and single units last."""
    seconds: float = float("inf")
    """A limit of processor seconds, in addition to that of simulations."""
    file: str = ""
    """Where to save the search when it ends or is stopped, and to resume it from."""
    policy: str = ""
    """A learned placer whose placement joins the starts: `default`, a trained one's folder, or a spec without knobs."""
    move: str = ""
    """A move of your own in place of ours, FILE.py:FUNCTION, as `placers.search.own_move` has it; the order is not
    changed then, once the starts are compared."""

    def __post_init__(self) -> None:
        if not 0 < self.cold <= self.hot:
            raise InputError(f"annealing: expected 0 < cold <= hot, got cold={self.cold}, hot={self.hot}")
        super().__post_init__()
        _ = self.learned, self.own_move  # refused here if it does not exist, not after a model was captured for it

    @cached_property
    def learned(self) -> Placer | None:
        """What `policy` names."""
        return placer_of(self.policy) if self.policy else None

    @cached_property
    def own_move(self) -> OwnMove | None:
        """What `move` names."""
        return OwnMove(self.move) if self.move else None

    def begin(self, problem: Problem, seed: int, budget: int) -> AnnealingSearch:
        """The first simulations compare the policy's placement, or its best samples, with those of the cheap placers.

        All are timed under the problem's rule, and those whose placers gave an order also under that.
        Without any simulation the policy's greedy placement is returned, or METIS's.
        """
        levels = levels_of(problem) if self.levels else (problem,)
        return AnnealingSearch(levels, self, seed, budget, starts(levels, budget, seed, self.learned, self.seconds))


build = Annealing


class AnnealingSearch(LocalSearch):
    """A local search that cools down."""

    saved: tuple[str, ...] = ("current", "priorities", "energy")

    def __init__(self, levels: Levels, settings: Annealing, seed: int, budget: int, given: Starts) -> None:
        """Simulates the starts, and begins at the best of them."""
        self._settings, self.notes = settings, given.notes
        first, spent = given.placements, given.spent
        evaluations = Evaluations(levels[0], first[0], spent)
        if budget > spent:
            evaluations.energies(first[: budget - spent])
        if settings.order:
            evaluations.compare_orders(given, budget)
        begin_where_it_fits(evaluations, levels[0], budget, seed, reorder=settings.order, seconds=settings.seconds)
        generator, move = np.random.default_rng(seed), settings.own_move
        own = None if move is None else move.proposals(levels[0], generator)
        super().__init__(levels[0], generator, evaluations, levels[1:], own)
        self._at_once = budget
        if settings.seconds < math.inf:
            self._at_once = max(int(settings.seconds / TEMPERATURES / SIMULATION.seconds(levels[0])), 1)

    def step(self, elapsed: float, left: int) -> None:
        """Try changes at the temperature of the moment."""
        budget = self.evaluations.simulations + left
        settings = self._settings
        reorder = REORDER if settings.order else 0.0
        self.take_steps(
            CoolingSchedule(settings.hot, settings.cold, budget, elapsed, reorder=reorder), min(left, self._at_once)
        )
