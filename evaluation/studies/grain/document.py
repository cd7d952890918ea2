"""The document of the study of grain: step times over the number of units, at equal simulations and equal seconds."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from evaluation.statistics import NOTHING, Estimate, estimate
from evaluation.studies.document import save_document
from evaluation.studies.frame import Frame, family_of
from evaluation.studies.grain.measure import OPS, Measured, Size
from graphs.op_graph import Floats

LIMITS = (0.03, 0.1, 0.3, 1.0)  # seconds of the processor at which grains are compared


@dataclass(frozen=True)
class GrainFindings:
    """What is done of a study, under one order."""

    order: str
    pieces: Sequence[Measured]

    @cached_property
    def grains(self) -> list[int]:
        """All of them, the coarsest first."""
        return sorted({piece.grain for piece in self.pieces}, key=_by_size)

    @cached_property
    def budgets(self) -> list[int]:
        """All of them, the smallest first."""
        return sorted({trial.budget for piece in self.pieces for trial in piece.trials})

    @cached_property
    def problems(self) -> tuple[str, ...]:
        """The problems that are done at every grain."""
        done = {(piece.problem, piece.grain) for piece in self.pieces}
        return tuple(
            problem
            for problem in dict.fromkeys(piece.problem for piece in self.pieces)
            if all((problem, grain) in done for grain in self.grains)
        )

    @cached_property
    def frame(self) -> Frame:
        """Its placers are pairs of a grain and a budget; a grain of more groups than units is that of the units."""
        seconds: dict[Hashable, dict[int, Floats]] = {}
        for column, problem in enumerate(self.problems):
            for grain in self.grains:
                for trial in self._piece(problem, grain).trials:
                    rows = seconds.setdefault((grain, trial.budget), {})
                    row = rows.setdefault(trial.seed, np.full(len(self.problems), np.nan))
                    row[column] = trial.step_seconds if trial.fits else np.inf
        return Frame(self.problems, seconds)

    @cached_property
    def families(self) -> dict[str, list[str]]:
        """The problems by their families."""
        return self.frame.apart(family_of)

    def over_best(self, grain: int, budget: int, problems: Collection[str] | None = None) -> Estimate:
        """Step times at a grain over the best of all grains, budgets and seeds."""
        return self.frame.ratio((grain, budget), self.frame.best(), problems)

    def cpu_seconds(self, grain: int, budget: int) -> float:
        """Mean processor seconds of the placer, and of making the groups."""
        return float(np.mean([self._seconds(problem, grain, budget) for problem in self.problems]))

    def at_seconds(self, grain: int, limit: float) -> Estimate:
        """Step times over the best where every problem has the same processor seconds.

        Between two budgets the logarithm of the step time is taken to be linear in that of the seconds. A problem
        counts only where some budget takes that long and some budget takes less, at every grain.
        """
        best, ratios = self.frame.best(), []
        for column, problem in enumerate(self.problems):
            curves = {each: self._curve(problem, each, best[column]) for each in self.grains}
            if all(taken[0] <= limit <= taken[-1] for taken, _ in curves.values()):
                taken, over = curves[grain]
                ratios.append(np.exp(np.interp(np.log(limit), np.log(taken), np.log(over))))
        return estimate([np.array(ratios)]) if ratios else NOTHING

    def _curve(self, problem: str, grain: int, best: float) -> tuple[Floats, Floats]:
        """Processor seconds, ascending, and step times over the best; both for each budget."""
        column = self.problems.index(problem)
        taken = np.maximum.accumulate([max(self._seconds(problem, grain, budget), 1e-4) for budget in self.budgets])
        over = np.array([self.frame.means[(grain, budget)][column] for budget in self.budgets]) / best
        fits = np.isfinite(over)
        return (taken[fits], over[fits]) if fits.any() else (np.array([np.inf]), np.ones(1))

    def _seconds(self, problem: str, grain: int, budget: int) -> float:
        piece = self._piece(problem, grain)
        return piece.grouping_seconds + float(np.mean([t.cpu_seconds for t in piece.trials if t.budget == budget]))

    def _piece(self, problem: str, grain: int) -> Measured:
        found = self._by_name[problem, grain]
        return found if found.trials else self._by_name[problem, OPS]

    @cached_property
    def _by_name(self) -> dict[tuple[str, int], Measured]:
        return {(piece.problem, piece.grain): piece for piece in self.pieces}


def findings(pieces: Sequence[Measured]) -> list[GrainFindings]:
    """Those under each order."""
    orders = dict.fromkeys(piece.order for piece in pieces)
    return [GrainFindings(order, [piece for piece in pieces if piece.order == order]) for order in orders]


def save(pieces: Sequence[Measured], size: Size, folder: Path, command: str) -> Path:
    """Write `grain.md` into a folder."""
    return save_document(
        "grain", "grain.md", folder, {},
        command=command, orders=findings(pieces), size=size, limits=LIMITS, ops=OPS,
    )  # fmt: skip


def _by_size(grain: int) -> float:
    return np.inf if grain == OPS else grain
