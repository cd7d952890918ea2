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

from envs.objectives.replacement import running_of
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

TEMPERATURES = 50  # of a round, where seconds are the limit: they are looked at between two calls of compiled code
CALL_SECONDS = 0.001  # of such a call, at least: less would go to calling
REORDER = 0.9  # the share of the last changes that are of the order
ROUNDS = 16  # at most
LEAST_ROUNDS = 3  # or one: of two, none would begin anywhere else
OF_UNIT = 40  # simulations of a round for each unit, at least
ALONE = 8  # the same of two rounds, where the best start has all on one device
MOST_UNITS = 128  # of a problem of several rounds; they were measured on up to 90


@dataclass(frozen=True)
class Annealing(SearchPlacer):
    """Many small changes, kept if they help, or by chance at high temperatures.

    Where there are many simulations for each of few units it cools down several times: from the best start, from random
    placements, and at last from the best of all. Only the first of these rounds moves groups of units: those bring all
    to one device, where that is a local optimum. Where the best start is there, the first is from a random one, too.
    """

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
    """A local search that cools down, once or in several rounds."""

    saved: tuple[str, ...] = ("current", "priorities", "energy", "round", "critical")

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
        self._begun, self._left = evaluations.simulations, max(budget - evaluations.simulations, 1)
        self._alone = bool((evaluations.best == evaluations.best[0]).all())
        known = self._left if settings.seconds == math.inf else 2 * ALONE * len(levels[0].units)
        self._rounds = self._rounds_of(known)  # of seconds, until it is seen for how many simulations they are enough
        self._at_once = self._left
        if settings.seconds < math.inf:
            self._at_once = max(int(settings.seconds / TEMPERATURES / SIMULATION.seconds(levels[0])), 1)
        self._since = math.nan  # the share of the seconds that was over before its first step
        self.round = -1

    def step(self, elapsed: float, left: int) -> None:
        """Try changes at the temperature of the moment, or begin the next round."""
        settings, done = self._settings, self.evaluations.simulations - self._begun
        self._since = elapsed if math.isnan(self._since) else self._since
        over = (elapsed - self._since) / (1 - self._since)  # of the time since then
        if over > 0 and self.round <= 0:  # as many rounds as there will be simulations for, at this speed
            in_time = min(self._left, int(done / over))
            self._rounds = self._rounds_of(in_time)
            a_call = max(1 / (TEMPERATURES * self._rounds), CALL_SECONDS / settings.seconds)
            self._at_once = max(int(in_time * a_call), 1)
        length = self._left // self._rounds
        number = max(done // length, int(over * self._rounds), self.round)
        number, is_last = min(number, self._rounds - 1), number >= self._rounds - 1
        is_elsewhere = self._rounds > 1 and (number > 0 or self._alone)
        if is_elsewhere:
            self.move_single_units()
        if number > self.round:
            self.round = number
            if is_elsewhere and not is_last:
                self.begin_again(self.evaluations.rule if self.has_order else self.priorities)
                return
            if is_elsewhere:
                self.begin_at_best()
        begun = self._begun + number * length
        most = left if is_last else min(left, begun + length - self.evaluations.simulations)
        schedule = CoolingSchedule(
            settings.hot, settings.cold, length, max(over * self._rounds - number, 0.0), begun=begun,
            reorder=REORDER if settings.order else 0.0,
        )  # fmt: skip
        self.take_steps(schedule, min(most, self._at_once))

    def _rounds_of(self, simulations: int) -> int:
        return rounds_of(self._problem, simulations, alone=self._alone)


def rounds_of(problem: Problem, simulations: int, *, alone: bool = False) -> int:
    """How many times a search of so many simulations cools down: once where a model runs already, or units are many.

    Where the best start is `alone` on one device, a local optimum that small changes do not leave, two rounds are soon
    better than one.
    """
    units = max(len(problem.units), 1)
    if units > MOST_UNITS or running_of(problem) is not None:
        return 1
    rounds = min(simulations // (OF_UNIT * units), ROUNDS)
    if rounds >= LEAST_ROUNDS:
        return rounds
    return 2 if alone and simulations >= 2 * ALONE * units else 1
