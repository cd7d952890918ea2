"""The document of the study of planners: what each finds, and what ours gains over the best of all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from evaluation.drawing.figures import BLUE, ORANGE
from evaluation.statistics import Estimate, estimate, geometric_mean
from evaluation.studies.document import save_document
from evaluation.studies.planners.cases import CLUSTERS, MODELS, PROFILES, SOURCES
from evaluation.studies.planners.measure import LONGER, RIVALS, Found, Longer, Measured

EQUAL = 1e-9  # relative: the same plan
CLOSE = 0.01  # to what a longer search finds


@dataclass(frozen=True)
class PlannerFindings:
    """What is measured of a study."""

    cases: Sequence[Measured]
    longer: Sequence[Longer] = ()  # of some of the cases

    def best(self, case: Measured) -> Found | None:
        """The fastest rival whose plan fits."""
        return min((each for each in case.rivals if each.fits), key=lambda each: each.seconds, default=None)

    def ratio(self, case: Measured) -> float:
        """Our step over the best rival's; NaN where no rival fits or ours does not."""
        best = self.best(case)
        return case.ours.seconds / best.seconds if best and case.ours.fits else np.nan

    def behind(self) -> list[Measured]:
        """Where a rival has the better plan."""
        return [case for case in self.cases if self.ratio(case) > 1 + EQUAL or (self.best(case) and not case.ours.fits)]

    def equal(self) -> list[Measured]:
        """Where ours is the plan of a rival, or one as fast."""
        return [case for case in self.cases if abs(self.ratio(case) - 1) <= EQUAL]

    def mean(self, source: str, rival: str = "") -> Estimate:
        """Geometric mean of our step over the best rival's, or one rival's; the interval is over models.

        A model counts with its mean over clusters. Cases where either does not fit are left out.
        """
        of_model: dict[str, list[float]] = {}
        for case in (each for each in self.cases if each.source == source and each.ours.fits):
            other = self.best(case) if not rival else self.of(case, rival)
            if other and other.fits:
                of_model.setdefault(case.model, []).append(case.ours.seconds / other.seconds)
        return estimate([np.array([float(geometric_mean(np.array(ratios))) for ratios in of_model.values()])])

    def of(self, case: Measured, rival: str) -> Found | None:
        """What a rival found."""
        return next((each for each in case.rivals if each.planner == rival), None)

    def lacking(self, source: str, rival: str) -> int:
        """On how many cases a rival has no plan that fits, where there is one."""
        some = [case for case in self.cases if case.source == source and case.ours.fits]
        return sum(1 for case in some if not ((found := self.of(case, rival)) and found.fits))

    def wins(self) -> Counter[str]:
        """How often each rival is the best of them."""
        return Counter(best.planner for case in self.cases if (best := self.best(case)))

    def gaps(self) -> list[tuple[Measured, float]]:
        """Our step over that of the longer search, of each case that has one."""
        found = {(each.model, each.cluster): each.found.seconds for each in self.longer}
        cases = [case for case in self.cases if (case.model, case.cluster) in found]
        return [(case, case.ours.seconds / found[case.model, case.cluster]) for case in cases]

    def far(self) -> list[tuple[Measured, float]]:
        """Where the longer search is better by more than `CLOSE`."""
        return [(case, gap) for case, gap in self.gaps() if gap > 1 + CLOSE]

    def cell(self, case: Measured, rival: str) -> str:
        """Its step over ours, or why there is none."""
        found = self.of(case, rival)
        if found is None:
            return "refused"
        return f"{found.seconds / case.ours.seconds:.2f}" if found.fits else "does not fit"


def save(found: PlannerFindings, folder: Path, command: str) -> Path:
    """Write `planners.md` and its figure into a folder."""
    sources = [source for source in SOURCES if any(case.source == source for case in found.cases)]
    return save_document(
        "planners", "planners.md", folder, {"planners.png": (partial(_bars, found=found), 5.6)}, command=command,
        found=found, rivals=RIVALS, sources=sources, profiles=PROFILES, models=MODELS, clusters=CLUSTERS, close=CLOSE,
        longer=LONGER, budget=found.cases[0].budget,
    )  # fmt: skip


def _bars(figure: Figure, found: PlannerFindings) -> None:
    """For each case, how much faster our step is than the best rival's."""
    axes = figure.subplots()
    cases = [case for case in found.cases if np.isfinite(found.ratio(case))]
    gains = [100 * (1 - found.ratio(case)) for case in cases]
    colours = [BLUE if case.source == SOURCES[0] else ORANGE for case in cases]
    axes.barh(range(len(cases)), gains, color=colours)
    axes.set_yticks(range(len(cases)), [f"{case.model}, {case.cluster}" for case in cases], fontsize=6)
    axes.invert_yaxis()
    axes.set_xlabel("step time below that of the best rival, per cent")
    for source, colour in zip(SOURCES, (BLUE, ORANGE), strict=True):
        axes.barh([0], [0], color=colour, label=source)
    axes.legend(fontsize=8)
    axes.grid(axis="x")
