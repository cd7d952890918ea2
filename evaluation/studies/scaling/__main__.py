"""Scaling: how good a policy gets over the updates of its training, and what ten times more would buy.

    python -m evaluation.studies.scaling --out runs/studies/scaling

A training that was stopped resumes from its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import msgspec
import numpy as np
from matplotlib.figure import Figure

from evaluation.drawing.figures import BLUE, GREY, ORANGE
from evaluation.studies.document import save_document
from evaluation.studies.pieces import PIECES, do_pieces, load_pieces
from evaluation.studies.scaling.findings import MORE, ScalingFindings
from evaluation.studies.scaling.fits import FORMS
from evaluation.studies.scaling.trainings import (
    BEST,
    GREEDY,
    RECIPE,
    SEARCH,
    SEARCHED,
    SMALLER,
    Outcome,
    Training,
    searched,
    tested_on,
)
from evaluation.studies.study import Study, run
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from training.runs.selection import NOT_FITTING

COLOURS = {GREEDY: BLUE, BEST: ORANGE}


@dataclass(frozen=True, kw_only=True)
class Scaling(Study):
    """Train policies for 1, 2, 4, ... times as many updates, each with a schedule of its own, and test all of them."""

    name = "scaling"
    updates: int = 80
    """Of the shortest trainings."""
    points: int = 5
    """Lengths of trainings, each twice as long as the one before."""
    seeds: int = 3
    """Trainings of each length."""
    problems: int = 120
    """Random problems that policies are tested on, of kinds that are not trained on."""

    def check(self) -> None:
        """Raise InputError for options that make no sense."""
        if min(self.updates, self.points, self.seeds, self.problems) < 1:
            raise InputError("a study needs at least one update, one length, one seed and one problem")

    def do(self) -> None:
        """All searches, and then the trainings, the short ones first."""
        problems = cache(partial(tested_on, self.problems))
        pieces: dict[Path, Callable[[], msgspec.Struct]] = {
            self._piece(0, seed): partial(_searched, seed, problems) for seed in range(self.seeds)
        }
        for training in (Training(length, seed) for length in self.lengths for seed in range(self.seeds)):
            made = partial(_trained, training, self.folder / "runs", problems)
            pieces[self._piece(training.updates, training.seed)] = made
        do_pieces(pieces)

    @property
    def lengths(self) -> list[int]:
        """Updates of the trainings."""
        return [self.updates << doubling for doubling in range(self.points)]

    def _piece(self, updates: int, seed: int) -> Path:
        return self.folder / PIECES / f"{updates}-{seed}.json"

    def save(self, folder: Path) -> Path:
        """Write `scaling.md` and its figure."""
        found = ScalingFindings.of(load_pieces(self.folder, Outcome))
        if len(found.lengths) < 2:
            raise InputError(f"{self.folder}: a curve needs trainings of two lengths at least")
        plot = f"{self.name}.png"
        return save_document(
            self.name, f"{self.name}.md", folder, {plot: (partial(_curves, found=found), 3.6)}, plot=plot, found=found,
            command=self.command("updates", "points", "seeds", "problems"), recipe=RECIPE, smaller=SMALLER,
            search=SEARCH, searched=SEARCHED, ways=tuple(COLOURS), more=MORE, forms=FORMS, not_fitting=NOT_FITTING,
        )  # fmt: skip


def _searched(seed: int, problems: Callable[[], list[Problem]]) -> Outcome:
    return searched(seed, problems())


def _trained(training: Training, runs: Path, problems: Callable[[], list[Problem]]) -> Outcome:
    return training.tested(runs, problems())


def _curves(figure: Figure, found: ScalingFindings) -> None:
    """Step times over the best known over updates: means with intervals, and the curves through them, continued."""
    axes = figure.subplots()
    longest = found.lengths[-1]
    updates = np.geomspace(found.lengths[0], MORE * longest, 60)
    for way, colour in COLOURS.items():
        means = found.over_best(way)
        middle = np.array([each.value for each in means])
        ends = np.array([[each.value - each.low, each.high - each.value] for each in means]).T
        axes.errorbar(found.lengths, middle, ends, fmt="o", color=colour, capsize=3, label=way)
        axes.plot(updates, found.curves[way].at(updates)[0], color=colour, linewidth=1)
    axes.axhline(found.search, color=GREY, linestyle=":", label=f"{SEARCH}, {SEARCHED:,} simulations")
    axes.axvline(longest, color=GREY, linewidth=0.5)
    axes.set_xscale("log")
    marks = [*found.lengths, MORE * longest]
    axes.set_xticks(marks, [f"{updates:,}" for updates in marks])
    axes.minorticks_off()
    axes.set_xlabel("updates")
    axes.set_ylabel("step time over the best known")
    axes.legend(fontsize=8)
    axes.grid()


if __name__ == "__main__":
    run(Scaling)
