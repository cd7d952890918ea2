"""What the study of the learned placers found on a suite: ratios of step times, and of simulations until a best.

A placer has a value per seed and problem. Means over seeds are geometric, and are those of a placer that fits on a
problem only if the plan of every seed does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evaluation.record import Failure, Record
from evaluation.statistics import Estimate, crossed, geometric_mean, until
from evaluation.studies.released_results import SAME
from graphs.op_graph import Bools, Floats

EXPERT = "human_expert"  # what all others are measured by


@dataclass(frozen=True)
class Fewer:
    """How many times fewer simulations a placer needs until it has what was a rival's best."""

    ratio: Estimate  # geometric mean of the rival's simulations over its own, where it came so far
    reached: int  # pairs of a problem and a seed in which it came so far
    pairs: int  # in which the rival found a plan that fits, and this one is done, or failed


@dataclass(frozen=True)
class Results:
    """The records of a suite so far, and what follows from them."""

    suite: str
    problems: tuple[str, ...]  # all of the suite's, whether or not they are done
    placers: tuple[str, ...]  # those asked for
    seeds: int
    records: Sequence[Record]
    failures: Sequence[Failure] = ()

    @cached_property
    def done(self) -> dict[tuple[str, str, int], Record]:
        """By problem, placer and seed; only what was asked for."""
        asked = {(p, placer, seed) for p in self.problems for placer in self.placers for seed in range(self.seeds)}
        return {record.case: record for record in self.records if record.case in asked}

    @cached_property
    def failed(self) -> list[Failure]:
        """Those asked for that gave no plan, and have none by now."""
        every = ((each, (each.problem, each.placer, each.seed)) for each in self.failures)
        asked = (each for each, key in every if key not in self.done and each.problem in self.problems)
        return [each for each in asked if each.placer in self.placers and each.seed < self.seeds]

    def of(self, placer: str, problem: str = "") -> list[Record]:
        """Its records on a problem, or on all."""
        chosen = (problem,) if problem else self.problems
        keys = ((each, placer, seed) for each in chosen for seed in range(self.seeds))
        return [self.done[key] for key in keys if key in self.done]

    def missing(self, placer: str) -> dict[str, list[int]]:
        """The seeds of each problem that are neither done nor failed."""
        failed = {(each.problem, each.placer, each.seed) for each in self.failed}
        there = self.done.keys() | failed
        absent = {p: [seed for seed in range(self.seeds) if (p, placer, seed) not in there] for p in self.problems}
        return {problem: seeds for problem, seeds in absent.items() if seeds}

    def seconds(self, placer: str) -> Floats:
        """(seeds, problems) step seconds; NaN where nothing is done, or the plan does not fit."""
        return self._table(placer, lambda record: record.step_seconds if record.fits else math.nan)

    @cached_property
    def best_known(self) -> Floats:
        """(problems,) the least step seconds of any fitting plan of the study; NaN without one."""
        fitting = ([r.step_seconds for r in self.done.values() if r.fits and r.problem == p] for p in self.problems)
        return np.array([min(each, default=math.nan) for each in fitting])

    def over(self, placer: str, rival: str = EXPERT) -> Estimate:
        """Geometric mean of step time over the rival's of the same seed, where both plans fit."""
        return crossed(self.seconds(placer) / self.seconds(rival))

    def over_best(self, placer: str) -> Estimate:
        """Geometric mean of step time over the best known of each problem, where the plan fits."""
        return crossed(self.seconds(placer) / self.best_known)

    def means(self, placer: str) -> dict[str, float]:
        """Step seconds of each problem that it has tried, mean over seeds; infinite if a seed has no plan that fits."""
        failed = {failure.problem for failure in self.failed if failure.placer == placer}
        found = {problem: self.of(placer, problem) for problem in self.problems}
        return {p: math.inf if p in failed else _mean(some) for p, some in found.items() if some or p in failed}

    def both(self, placer: str, rival: str) -> list[str]:
        """The problems that both have tried."""
        own, other = self.means(placer), self.means(rival)
        return [problem for problem in self.problems if problem in own and problem in other]

    def wins(self, placer: str, rival: str, *, or_equal: bool = False) -> int:
        """On how many problems its mean over seeds is faster, or it fits where the rival does not.

        Times closer than a tenth of a per cent are equal.
        """
        own, other = self.means(placer), self.means(rival)
        bound = 1 + SAME if or_equal else 1 - SAME
        return sum(math.isfinite(own[p]) and own[p] <= bound * other[p] for p in self.both(placer, rival))

    def unfit(self, placer: str) -> Bools:
        """(seeds, problems) whether a plan does not fit."""
        return np.equal(self._table(placer, lambda record: float(record.fits)), 0.0)

    def fewer(self, placer: str, rival: str) -> Fewer:
        """The simulations until the rival's best of the same problem and seed, beside the rival's own."""
        ratios, pairs = np.zeros((self.seeds, len(self.problems))), 0  # 0: it never came so far
        undone = self.missing(placer)
        for seed, column in np.ndindex(ratios.shape):
            own, other = (self.done.get((self.problems[column], each, seed)) for each in (placer, rival))
            if other is not None and other.curve and seed not in undone.get(other.problem, ()):
                pairs += 1
                simulations, best = other.curve[-1]
                ratios[seed, column] = simulations / until(own.curve if own is not None else (), best)
        return Fewer(crossed(np.where(ratios > 0, ratios, np.nan)), int((ratios > 0).sum()), pairs)

    def progress(self, placer: str, simulations: Floats) -> tuple[Floats, int]:
        """Best step time over the expert's after so many simulations, and over how many problems that is a mean.

        The (seeds, points) ratios are geometric means over the problems on which the expert fits and each of the
        placer's seeds has found a plan that fits; NaN before it has one of each.
        """
        expert = self.means(EXPERT)
        seeds = sorted({record.seed for record in self.of(placer)})
        fit = [
            problem for problem in self.problems
            if math.isfinite(expert.get(problem, math.nan)) and self._searched(placer, problem, seeds)
        ]  # fmt: skip
        found = np.full((len(seeds), len(simulations)), np.nan)
        for row, seed in enumerate(seeds if fit else []):
            ratios = [_best_after(self.done[p, placer, seed], simulations) / expert[p] for p in fit]
            found[row] = geometric_mean(np.stack(ratios, axis=-1))
        return found, len(fit)

    def _searched(self, placer: str, problem: str, seeds: Collection[int]) -> bool:
        """Whether there are seeds, and each has found a plan that fits."""
        records = self.of(placer, problem)
        return 0 < len(records) == len(seeds) and all(record.curve for record in records)

    def _table(self, placer: str, value: Callable[[Record], float]) -> Floats:
        """(seeds, problems) a value of each record; NaN without one."""
        table = np.full((self.seeds, len(self.problems)), np.nan)
        columns = {problem: column for column, problem in enumerate(self.problems)}
        for record in self.of(placer):
            table[record.seed, columns[record.problem]] = value(record)
        return table


def _mean(records: Sequence[Record]) -> float:
    """Geometric mean of step seconds; infinite if one does not fit."""
    if not all(record.fits for record in records):
        return math.inf
    return float(geometric_mean(np.array([record.step_seconds for record in records])))


def _best_after(record: Record, simulations: Floats) -> Floats:
    """(points,) the best step seconds that a search had found after so many simulations; NaN before the first."""
    when, seconds = np.array(record.curve).T
    index = np.searchsorted(when, simulations, side="right") - 1
    found: Floats = np.where(index >= 0, seconds[np.maximum(index, 0)], np.nan)
    return found
