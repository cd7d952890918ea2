"""What the same plans take under each rule, how robust they are under it, and what ties decide."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from envs.orders import GIVEN
from evaluation.statistics import Estimate, estimate, geometric_mean
from evaluation.studies.cheap_placers import CHEAP
from evaluation.studies.frame import EQUAL_TIMES, Against, Frame, family_of
from evaluation.studies.order.rules import PLACERS, RULES, Ordered, Times
from evaluation.studies.released.parts import GREEDY
from graphs.op_graph import Floats
from graphs.problem import DEFAULT_ORDER, FIFO

BEST_CHEAP = "best cheap"  # no placer: the fastest of CHEAP on each problem
METIS = "metis"
ALLOWED = 1.01  # what a placer may lose on a family from the order that is the default


class Run(NamedTuple):
    """A placer's plan, made for a problem with one rule, under an order."""

    placer: str
    made: str
    order: str


@dataclass(frozen=True)
class Robust:
    """Plans under an order, and under noise and on links that do not queue."""

    step: Estimate  # over the same plans under first come, first served; so are the next two
    noisy_step: Estimate  # medians under noise
    worst_step: Estimate  # worst under noise
    median: Estimate  # under noise over the step without; so are the next two
    worst: Estimate
    worst_of_all: float  # of any plan on any problem
    free: Estimate  # on links that do not queue over the step on those that do
    freest: float  # the largest of any plan on any problem
    best: float  # share of the plans that take least under this rule, or 0.1% more; NaN for an order that is no rule


@dataclass(frozen=True)
class Moved:
    """What noise changes in plans under an order."""

    shown: str  # the noise, in words
    typical: float  # geometric mean of the slowest draw over the fastest
    largest: float
    share: float  # of the plans, by more than 0.1% from the step without noise
    flips: float  # share of the pairs of placers whose order on a problem is another in a draw, on average
    policy: tuple[float, float]  # the least and the largest geometric mean of the policy over METIS in any draw


@dataclass(frozen=True)
class RuleFindings:
    """All that is measured of the rules."""

    pieces: Sequence[Ordered]

    @cached_property
    def frame(self) -> Frame:
        """Seconds of a step by `Run`."""
        return self.frame_of(lambda times: times.seconds)

    def frame_of(self, value: Callable[[Times], float]) -> Frame:
        """Any seconds by `Run`; infinite where the plan does not fit."""
        problems = tuple(piece.problem for piece in self.pieces)
        seconds: dict[Hashable, dict[int, Floats]] = {}
        for column, piece in enumerate(self.pieces):
            for timing in piece.timings:
                run = Run(timing.placer, timing.made, timing.order)
                row = seconds.setdefault(run, {0: np.full(len(problems), np.nan)})[0]
                row[column] = value(timing.times) if timing.times.fits else np.inf
        best: dict[Hashable, list[Hashable]] = {
            Run(BEST_CHEAP, rule, rule): [Run(placer, rule, rule) for placer in CHEAP] for rule in RULES
        }
        return Frame(problems, seconds, best)

    @property
    def families(self) -> dict[str, list[str]]:
        """The problems of each family."""
        return self.frame.apart(family_of)

    @cached_property
    def failures(self) -> list[str]:
        """What could not be placed, each once."""
        return sorted({f"{piece.problem}, {failure}" for piece in self.pieces for failure in piece.failures})

    def same_plans(self, placer: str, order: str, problems: Collection[str] | None = None) -> Against:
        """A placer's plans, made under first come, first served, under another order against that."""
        return self.frame.against(Run(placer, FIFO, order), Run(placer, FIFO, FIFO), problems)

    def over_fifo(self, order: str, problems: Collection[str] | None = None) -> Estimate:
        """All placers' plans under an order over the same plans under first come, first served."""
        return _pooled(self._same(self.frame, order), self._same(self.frame, FIFO), self.frame.columns(problems))

    def is_best(self, rule: str, problems: Collection[str] | None = None) -> float:
        """Share of the plans that no rule makes faster by more than 0.1%."""
        columns = self.frame.columns(problems)
        seconds = np.array([self._same(self.frame, each)[:, columns] for each in RULES])
        least = np.nanmin(np.where(np.isfinite(seconds), seconds, np.inf), axis=0)
        there = np.isfinite(least)
        own = seconds[RULES.index(rule)]
        return float((own[there] <= (1 + EQUAL_TIMES) * least[there]).mean()) if there.any() else np.nan

    def best_rule(self, problems: Collection[str] | None = None) -> str:
        """The rule with the least geometric mean over all plans."""
        return min(RULES, key=lambda rule: self.over_fifo(rule, problems).value)

    def better_elsewhere(self, rule: str) -> list[tuple[str, str, float]]:
        """Families where another rule is faster by more than 1%: the family, that rule, and the given one over it."""
        found = []
        for family, problems in self.families.items():
            best, own = self.best_rule(problems), self.over_fifo(rule, problems).value
            if (ratio := own / self.over_fifo(best, problems).value) > ALLOWED:
                found.append((family, best, ratio))
        return sorted(found, key=lambda each: -each[2])

    def robust(self, order: str) -> Robust:
        """Of all placers' plans that were made under first come, first served; with GIVEN, of those with an order."""
        step, median, worst, free = (self._same(frame, order) for frame in self._frames)
        fifo_step, fifo_median, fifo_worst, _ = (self._same(frame, FIFO) for frame in self._frames)
        return Robust(
            step=_pooled(step, fifo_step), noisy_step=_pooled(median, fifo_median),
            worst_step=_pooled(worst, fifo_worst), median=_pooled(median, step), worst=_pooled(worst, step),
            worst_of_all=_largest(worst / step), free=_pooled(free, step), freest=_largest(free / step),
            best=self.is_best(order) if order in RULES else np.nan,
        )  # fmt: skip

    def as_handed_on(self, placer: str, problems: Collection[str] | None = None) -> Against:
        """A placer under the default rule, or under its own order if it hands one on, against first come, first served.

        Each time the placer is given the problem with the rule under which its plan is run.
        """
        own = Run(placer, DEFAULT_ORDER, GIVEN)
        now = own if own in self.frame.seconds else Run(placer, DEFAULT_ORDER, DEFAULT_ORDER)
        return self.frame.against(now, Run(placer, FIFO, FIFO), problems)

    @cached_property
    def exceptions(self) -> list[tuple[str, str, Against]]:
        """Cheap placers and families that lose more than ALLOWED from the default order, the worst first."""
        found = [
            (placer, family, self.as_handed_on(placer, problems))
            for placer in CHEAP
            for family, problems in self.families.items()
        ]
        return sorted((each for each in found if each[2].ratio.value > ALLOWED), key=lambda each: -each[2].ratio.value)

    def moved(self, rule: str, noise: str, shown: str) -> Moved:
        """What noise ("ties" or "shaken") changes of what placers make under a rule and run under it."""
        draws = len(getattr(self.pieces[0].timings[0].times, noise))
        drawn = [self.frame_of(_draw(noise, draw)) for draw in range(draws)]
        runs = [Run(placer, rule, rule) for placer in PLACERS]
        nominal, noisy = _seconds(self.frame, runs), np.array([_seconds(frame, runs) for frame in drawn])
        there = np.isfinite(nominal)
        ranges = (noisy.max(axis=0) / noisy.min(axis=0))[there]
        most = np.abs(noisy / nominal - 1).max(axis=0)[there]
        policy = [frame.against(Run(GREEDY, rule, rule), Run(METIS, rule, rule)).ratio.value for frame in drawn]
        return Moved(
            shown, float(geometric_mean(ranges)), float(ranges.max()), float((most > EQUAL_TIMES).mean()),
            float(np.mean([flipped(nominal, each) for each in noisy])), (min(policy), max(policy)),
        )  # fmt: skip

    @cached_property
    def _frames(self) -> tuple[Frame, ...]:
        return (
            self.frame, self.frame_of(lambda times: times.median), self.frame_of(lambda times: times.worst),
            self.frame_of(lambda times: times.free),
        )  # fmt: skip

    @staticmethod
    def _same(frame: Frame, order: str, placers: Iterable[str] = PLACERS) -> Floats:
        """(placers, problems) of the plans made under first come, first served, run under an order."""
        return _seconds(frame, [Run(placer, FIFO, order) for placer in placers])


def _draw(noise: str, number: int) -> Callable[[Times], float]:
    """What a plan takes in one draw of a noise."""
    return lambda times: float(getattr(times, noise)[number])


def flipped(one: Floats, other: Floats) -> float:
    """Share of the pairs of placers, of all problems, of which one is faster once and the other the other time.

    Both are (placers, problems). Times within 0.1% of each other are equal, and flip with no other.
    """
    changed = pairs = 0
    for row in range(len(one)):
        for rival in range(row):
            signs = [_sign(seconds[row], seconds[rival]) for seconds in (one, other)]
            there = ~np.isnan(signs[0]) & ~np.isnan(signs[1])
            changed += int((signs[0][there] * signs[1][there] < 0).sum())
            pairs += int(there.sum())
    return changed / pairs if pairs else np.nan


def _sign(own: Floats, rival: Floats) -> Floats:
    """-1 where faster, 1 where slower, 0 for equal times, NaN where one does not fit."""
    ratio = np.log(own / rival)
    signs: Floats = np.where(np.abs(ratio) > EQUAL_TIMES, np.sign(ratio), np.where(np.isnan(ratio), np.nan, 0.0))
    return signs


def _largest(ratios: Floats) -> float:
    """NaN where there is none."""
    there = ratios[np.isfinite(ratios)]
    return float(there.max()) if len(there) else np.nan


def _seconds(frame: Frame, runs: Sequence[Run]) -> Floats:
    """(runs, problems) seconds where the plan fits, else NaN."""
    seconds = np.array([frame.means[run] for run in runs])
    return np.where(np.isfinite(seconds), seconds, np.nan)


def _pooled(own: Floats, rival: Floats, columns: Sequence[int] | None = None) -> Estimate:
    """Geometric mean over problems, with its interval, of each one's over placers; both are (placers, problems)."""
    logs = np.log(own / rival)[:, list(range(own.shape[1])) if columns is None else list(columns)]
    means = [float(np.exp(column[~np.isnan(column)].mean())) for column in logs.T if not np.isnan(column).all()]
    return estimate([np.array(means)] if means else [])
