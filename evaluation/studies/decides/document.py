"""What the study of what decides found: step times of variants, over those of the base and of the best cheap placer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from evaluation.drawing.figures import BLUE, GREY, ORANGE
from evaluation.reporting.findings import than
from evaluation.statistics import Estimate
from evaluation.studies.cheap_placers import FEW_CHEAP
from evaluation.studies.decides import runs
from evaluation.studies.decides.runs import BEST, CHEAP, GREEDY, VariantResult, passes_name
from evaluation.studies.decides.variants import BASE, CLUSTERS, FAMILIES, GROUPS, VARIANTS, DecidesSize, base_recipe
from evaluation.studies.document import save_document
from evaluation.studies.frame import Frame, family_of
from graphs.op_graph import Floats

ROUNDED = 5e-4  # an end of an interval that is printed as 1.000 is no difference
PLOT = "decides_ratios.png"


@dataclass(frozen=True)
class VariantFindings:
    """What is done of a study, and what follows from it; only plans that fit have a step time."""

    size: DecidesSize
    pieces: Sequence[VariantResult]

    @cached_property
    def frame(self) -> Frame:
        """Its placers are pairs of a variant and a placer."""
        return Frame.of(((piece.variant, record.placer), record) for piece in self.pieces for record in piece.records)

    @cached_property
    def variants(self) -> list[str]:
        """Those with anything done, the base first."""
        done = {piece.variant for piece in self.pieces}
        return [name for name in VARIANTS if name in done]

    @cached_property
    def families(self) -> list[str]:
        """Of the graphs that are judged by, the one that is never trained on last."""
        there = {family_of(problem) for problem in self.frame.problems}
        return [*(name for name in FAMILIES if name in there), *sorted(there - set(FAMILIES))]

    @cached_property
    def cheap_seconds(self) -> Floats:
        """(problems,) the least step seconds of a cheap placer's plan that fits."""
        return self.frame.best((CHEAP, placer) for placer in FEW_CHEAP)

    def of(self, variant: str) -> list[VariantResult]:
        """A piece per seed."""
        return [piece for piece in self.pieces if piece.variant == variant]

    def over_base(self, variant: str, placer: str) -> Estimate:
        """Step times over those of the base of the same seed."""
        return self.frame.ratio((variant, placer), (BASE, placer))

    def over_cheap(self, variant: str, placer: str, families: Collection[str] = ()) -> Estimate:
        """Step times over those of the best cheap placer of each problem, of some families or of all."""
        problems = [name for name in self.frame.problems if family_of(name) in (families or self.families)]
        return self.frame.ratio((variant, placer), self.cheap_seconds, problems)

    def verdicts(self, placer: str, which: str) -> list[tuple[str, Estimate]]:
        """The variants that a verdict is about, and their ratios, the slowest first."""
        ratios = [(name, self.over_base(name, placer)) for name in self.variants if name != BASE]
        some = [(name, ratio) for name, ratio in ratios if ratio.count and verdict(ratio) == which]
        return sorted(some, key=lambda item: -item[1].value)

    def seeds_apart(self, variant: str, placer: str) -> float:
        """Geometric mean over problems of the slowest seed over that of the fastest; NaN of fewer than two seeds."""
        seconds = self.frame.table((variant, placer))
        if len(seconds) < 2:
            return np.nan
        means = np.log(seconds[:, np.isfinite(seconds).all(axis=0)]).mean(axis=1)
        return float(np.exp(np.ptp(means)))

    def training_seconds(self, variant: str) -> float:
        """Mean of those that were not stopped on the way; NaN without one."""
        seconds = [piece.training_seconds for piece in self.of(variant) if piece.training_seconds is not None]
        return float(np.mean(seconds)) if seconds else np.nan

    def simulations(self, variant: str) -> float:
        """Mean of its trainings."""
        return float(np.mean([piece.simulations for piece in self.of(variant)]))


def save(found: VariantFindings, folder: Path, command: str) -> Path:
    """Write `decides.md` and its plot into a folder."""
    height = 1.0 + 0.32 * len(found.variants)
    recipe = base_recipe(found.size)
    return save_document(
        "decides", "decides.md", folder, {PLOT: (partial(_forest, found=found), height)},
        command=command, found=found, size=found.size, ppo=recipe.ppo, imitation=recipe.imitation,
        labels={name: variant.label for name, variant in VARIANTS.items()},
        done={name: len(found.of(name)) for name in found.variants}, verdict=verdict, than=than,
        passes_name=passes_name, base=BASE, greedy=GREEDY, best=BEST, passes=runs.PASSES, cheap=FEW_CHEAP,
        families=FAMILIES, clusters=CLUSTERS, groups=GROUPS, unseen=runs.UNSEEN, plot=PLOT,
    )  # fmt: skip


def verdict(ratio: Estimate) -> Literal["better", "worse", "same"]:
    """What a ratio of step times says; "same" if its interval contains 1: no difference that the study can see."""
    if ratio.low > 1 + ROUNDED:
        return "worse"
    return "better" if ratio.high < 1 - ROUNDED else "same"


def _forest(figure: Figure, found: VariantFindings) -> None:
    """A row per variant, with the ratio to the base of both judgements and their intervals."""
    axes = figure.subplots()
    names = [name for name in found.variants if name != BASE]
    axes.axvline(1.0, color=GREY, linewidth=1)
    judged = ((GREEDY, "greedy", BLUE, -0.12), (BEST, f"best of {found.size.choices}", ORANGE, 0.12))
    for placer, label, colour, shift in judged:
        ratios = [found.over_base(name, placer) for name in names]
        values = np.array([ratio.value for ratio in ratios])
        ends = np.array([[ratio.value - ratio.low, ratio.high - ratio.value] for ratio in ratios]).reshape(-1, 2)
        places = np.arange(len(names)) + shift
        axes.errorbar(values, places, xerr=ends.T.clip(0), fmt="o", color=colour, markersize=4, label=label)
    axes.set_yticks(range(len(names)), [VARIANTS[name].label for name in names])
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.set_xlabel("step time / base's; below 1 is better")
    axes.grid(axis="x")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
