"""What the study of what decides found: step times of variants, over those of the base and of the best cheap placer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from evaluation.statistics import Estimate, crossed
from evaluation.studies.decides_pieces import RIVALS, Piece
from evaluation.studies.decides_variants import FAMILIES, VARIANTS, Settings
from graphs.op_graph import Floats

Verdict = Literal["better", "worse", "same"]
ROUNDED = 5e-4  # an end of an interval that is printed as 1.000 is no difference


@dataclass(frozen=True)
class Results:
    """The pieces of a study, and what follows from them; only plans that fit have a step time."""

    settings: Settings
    pieces: Sequence[Piece]

    @cached_property
    def variants(self) -> list[str]:
        """Those with anything done, the base first."""
        done = {piece.variant for piece in self.pieces}
        return [name for name in VARIANTS if name in done]

    @cached_property
    def families(self) -> list[str]:
        """Of the graphs that are judged by, the one that is never trained on last."""
        there = {problem.partition(":")[0] for problem in self.problems}
        return [*(name for name in FAMILIES if name in there), *sorted(there - set(FAMILIES))]

    @cached_property
    def problems(self) -> list[str]:
        """In the order of the records."""
        return list(dict.fromkeys(record.problem for piece in self.pieces for record in piece.records))

    @cached_property
    def cheap_seconds(self) -> dict[str, float]:
        """Of each problem, the least step time of a cheap placer's fitting plan."""
        best: dict[str, float] = {}
        for record in (r for piece in self.pieces if piece.variant == RIVALS for r in piece.records if r.fits):
            best[record.problem] = min(best.get(record.problem, np.inf), record.step_seconds)
        return best

    def of(self, variant: str) -> list[Piece]:
        """A piece per seed."""
        return [piece for piece in self.pieces if piece.variant == variant]

    def over(self, variant: str, placer: str, rival: tuple[str, str], families: Sequence[str] = ()) -> Estimate:
        """Step times of a variant's placer over those of a rival (variant, placer), of the same seed and problem."""
        own, other = self._seconds(variant, placer), self._seconds(*rival)
        seeds = [seed for seed in own if seed in other]
        kept = self._columns(families)
        return crossed(np.array([own[seed][kept] / other[seed][kept] for seed in seeds]))

    def over_cheap(self, variant: str, placer: str, families: Sequence[str] = ()) -> Estimate:
        """Step times over those of the best cheap placer of each problem."""
        cheap = np.array([self.cheap_seconds.get(problem, np.nan) for problem in self.problems])
        kept = self._columns(families)
        return crossed(np.array([(seconds / cheap)[kept] for seconds in self._seconds(variant, placer).values()]))

    def seeds_apart(self, variant: str, placer: str) -> float:
        """Geometric mean over problems of the slowest seed over that of the fastest; NaN of fewer than two seeds."""
        seconds = np.array(list(self._seconds(variant, placer).values()))
        if len(seconds) < 2:
            return np.nan
        means = np.log(seconds[:, np.isfinite(seconds).all(axis=0)]).mean(axis=1)
        return float(np.exp(np.ptp(means)))

    def fitting(self, variant: str, placer: str) -> float:
        """Share of the plans that fit."""
        seconds = list(self._seconds(variant, placer).values())
        return float(np.isfinite(seconds).mean()) if seconds else np.nan

    def _seconds(self, variant: str, placer: str) -> dict[int, Floats]:
        """(problems,) of each seed; NaN where nothing fits or is done."""
        found: dict[int, Floats] = {}
        for piece in self.of(variant):
            by_problem = {r.problem: r.step_seconds for r in piece.records if r.placer == placer and r.fits}
            found[piece.seed] = np.array([by_problem.get(problem, np.nan) for problem in self.problems])
        return found

    def _columns(self, families: Sequence[str]) -> list[int]:
        """The problems of some families, or all."""
        chosen = families or self.families
        return [i for i, problem in enumerate(self.problems) if problem.partition(":")[0] in chosen]


def verdict(ratio: Estimate) -> Verdict:
    """What a ratio of step times says; "same" if its interval contains 1: no difference that the study can see."""
    if ratio.low > 1 + ROUNDED:
        return "worse"
    return "better" if ratio.high < 1 - ROUNDED else "same"
