"""What the study of the learned placers found on a suite: step times, and simulations until a best.

Means over seeds are geometric, and are those of a placer that fits on a problem only if the plan of every seed does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evaluation.records.record import Failure, Record
from evaluation.records.statistics import Estimate, crossed, geometric_mean, until
from evaluation.studies.frame import EQUAL_TIMES, Frame, faster
from graphs.op_graph import Floats

EXPERT = "human_expert"  # the placer that all others are compared with


@dataclass(frozen=True)
class Fewer:
    """How many times fewer simulations a placer needs until it has what was a rival's best."""

    ratio: Estimate  # geometric mean of the rival's simulations over its own, where it reached that
    reached: int  # pairs of a problem and a seed in which it reached that
    pairs: int  # in which the rival found a plan that fits, and this one is done, or failed


@dataclass(frozen=True)
class SuiteFindings:
    """The records of a suite so far, and what follows from them."""

    name: str
    problems: tuple[str, ...]  # all of the suite's, whether or not they are done
    placers: tuple[str, ...]  # those asked for
    seeds: int
    records: Sequence[Record]
    failures: Sequence[Failure] = ()

    @cached_property
    def done(self) -> dict[tuple[str, str, int], Record]:
        """By problem, placer and seed; only what was asked for."""
        return {record.case: record for record in self.records if self._is_asked(record)}

    @cached_property
    def failed(self) -> list[Failure]:
        """Failures of what was asked for, where there is still no plan."""
        asked = (each for each in self.failures if self._is_asked(each))
        return [each for each in asked if (each.problem, each.placer, each.seed) not in self.done]

    @cached_property
    def frame(self) -> Frame:
        """Of all that was asked for, with failures."""
        every: list[Record | Failure] = [*self.failed, *self.done.values()]
        return Frame.of(((each.placer, each) for each in every), problems=self.problems, seeds=range(self.seeds))

    @cached_property
    def best_known(self) -> Floats:
        """(problems,) the least step seconds of any fitting plan of the study; NaN without one."""
        return self.frame.best()

    def of(self, placer: str, problem: str = "") -> list[Record]:
        """Its records on a problem, or on all."""
        chosen = (problem,) if problem else self.problems
        keys = ((each, placer, seed) for each in chosen for seed in range(self.seeds))
        return [self.done[key] for key in keys if key in self.done]

    def missing(self, placer: str) -> dict[str, list[int]]:
        """The seeds of each problem that are neither done nor failed."""
        there = self.done.keys() | {(each.problem, each.placer, each.seed) for each in self.failed}
        absent = {p: [seed for seed in range(self.seeds) if (p, placer, seed) not in there] for p in self.problems}
        return {problem: seeds for problem, seeds in absent.items() if seeds}

    def undone(self) -> Iterator[tuple[str, tuple[int, ...], list[str]]]:
        """Each placer with the problems that lack the same seeds, and these."""
        for placer in self.placers:
            by_seeds: dict[tuple[int, ...], list[str]] = {}
            for problem, seeds in self.missing(placer).items():
                by_seeds.setdefault(tuple(seeds), []).append(problem)
            yield from ((placer, seeds, problems) for seeds, problems in by_seeds.items())

    def wins(self, placer: str, rival: str, *, or_equal: bool = False) -> int:
        """On how many problems its mean over seeds is faster, or it fits where the rival does not.

        Times closer than EQUAL_TIMES are equal.
        """
        means = self.frame.means
        return int(faster(means[placer], means[rival], by=-EQUAL_TIMES if or_equal else EQUAL_TIMES).sum())

    def unfit(self, placer: str, rival: str = "") -> int:
        """How many plans do not fit, or do not where the rival's of the same seed does."""
        unfit = [record for record in self.of(placer) if not record.fits]
        rivals = (self.done.get((record.problem, rival, record.seed)) for record in unfit)
        return sum(not rival or (other is not None and other.fits) for other in rivals)

    def fewer(self, placer: str, rival: str) -> Fewer:
        """The simulations until the rival's best of the same problem and seed, over the rival's own."""
        ratios, pairs = np.zeros((self.seeds, len(self.problems))), 0  # 0: never reached
        undone = self.missing(placer)
        for seed, column in np.ndindex(ratios.shape):
            own, other = (self.done.get((self.problems[column], each, seed)) for each in (placer, rival))
            if other is not None and other.curve and seed not in undone.get(other.problem, ()):
                pairs += 1
                simulations, best = other.curve[-1]
                ratios[seed, column] = simulations / until(own.curve if own is not None else (), best)
        return Fewer(crossed(np.where(ratios > 0, ratios, np.nan)), int((ratios > 0).sum()), pairs)

    def progress(self, placer: str, simulations: Floats) -> tuple[Floats, int]:
        """Best step time over the expert's after these numbers of simulations, and of how many problems it is a mean.

        The (seeds, points) ratios are geometric means over the problems on which the expert fits and each of the
        placer's seeds has found a plan that fits; NaN before it has one of each.
        """
        expert = dict(zip(self.problems, self.frame.means[EXPERT], strict=True))
        seeds = sorted({record.seed for record in self.of(placer)})
        fit = [p for p in self.problems if math.isfinite(expert[p]) and self._searched(placer, p, seeds)]
        found = np.full((len(seeds), len(simulations)), np.nan)
        for row, seed in enumerate(seeds if fit else []):
            ratios = [_best_after(self.done[p, placer, seed], simulations) / expert[p] for p in fit]
            found[row] = geometric_mean(np.stack(ratios, axis=-1))
        return found, len(fit)

    def _is_asked(self, each: Record | Failure) -> bool:
        return each.problem in self.problems and each.placer in self.placers and each.seed in range(self.seeds)

    def _searched(self, placer: str, problem: str, seeds: Collection[int]) -> bool:
        """Whether there are seeds, and each has found a plan that fits."""
        records = self.of(placer, problem)
        return 0 < len(records) == len(seeds) and all(record.curve for record in records)


def _best_after(record: Record, simulations: Floats) -> Floats:
    """(points,) the best step seconds that a search had found after these simulations; NaN before the first."""
    when, seconds = np.array(record.curve).T
    index = np.searchsorted(when, simulations, side="right") - 1
    found: Floats = np.where(index >= 0, seconds[np.maximum(index, 0)], np.nan)
    return found
