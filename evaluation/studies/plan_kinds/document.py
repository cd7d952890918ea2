"""The document of the study of kinds of plans: seconds per sample of each kind, over numbers of devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from evaluation.drawing.figures import BLUE, GREEN, ORANGE, PURPLE
from evaluation.formatting import memory
from evaluation.statistics import geometric_mean
from evaluation.studies.document import save_document
from evaluation.studies.plan_kinds.measure import (
    CLUSTERS,
    DATA,
    GROUPS,
    KINDS,
    MIXTURE,
    MODELS,
    PIPELINE,
    PLACEMENT,
    Found,
    Measured,
)

EQUAL = 0.01  # kinds whose times differ by less are equally fast
COLOURS = {PLACEMENT: ORANGE, DATA: BLUE, PIPELINE: GREEN, MIXTURE: PURPLE}
MARKS = {PLACEMENT: "o", DATA: "s", PIPELINE: "^", MIXTURE: "D"}
WHOLE = (DATA, PIPELINE, MIXTURE)


class Loss(NamedTuple):
    """Where one kind of plan is slower than another."""

    case: Measured
    ratio: float  # of their step times


@dataclass(frozen=True)
class KindFindings:
    """What is measured of a study."""

    cases: Sequence[Measured]

    @property
    def several(self) -> list[Measured]:
        """The cases of several devices."""
        return [case for case in self.cases if case.devices > 1]

    def best(self, case: Measured, kind: str) -> Found | None:
        """The fastest plan of a kind that fits."""
        return min((one for one in case.found if one.kind == kind and one.fits), key=_seconds, default=None)

    def winners(self, case: Measured) -> list[str]:
        """The fastest kinds: several that are equally fast."""
        best = {kind: one.seconds for kind in KINDS if (one := self.best(case, kind))}
        return [kind for kind, seconds in best.items() if seconds <= (1 + EQUAL) * min(best.values())]

    def wins(self) -> Counter[str]:
        """On how many cases of several devices each kind is the fastest, alone or with others."""
        return Counter(kind for case in self.several for kind in self.winners(case))

    def slower(self, kind: str, than: str) -> list[Loss]:
        """The cases of several devices where the fastest plan of a kind is slower than that of another, most first."""
        both = [(case, self.best(case, kind), self.best(case, than)) for case in self.several]
        losses = [Loss(case, own.seconds / rival.seconds) for case, own, rival in both if own and rival]
        return sorted((loss for loss in losses if loss.ratio > 1 + EQUAL), key=lambda loss: -loss.ratio)

    def alone(self, kind: str) -> list[Measured]:
        """The cases of several devices where a kind is faster than all others."""
        return [case for case in self.several if self.winners(case) == [kind]]

    def unfit(self, kind: str) -> list[Measured]:
        """The cases where no plan of a kind fits, though there are some."""
        return [case for case in self.cases if _of(case, kind) and not self.best(case, kind)]

    def mean(self, kind: str, over: str) -> float:
        """Geometric mean of a kind's step time over another's, where both fit, on several devices."""
        pairs = [(self.best(case, kind), self.best(case, over)) for case in self.several]
        ratios = np.array([own.seconds / other.seconds for own, other in pairs if own and other])
        return float(geometric_mean(ratios)) if len(ratios) else np.nan

    def cell(self, case: Measured, kind: str) -> str:
        """Milliseconds per sample; or what the plan that comes nearest to fitting needs."""
        if one := self.best(case, kind):
            text = f"{1e3 * one.seconds / case.samples:.3f}"
            return f"**{text}**" if kind in self.winners(case) else text
        needed = min((each.peak_bytes for each in _of(case, kind)), default=None)
        return "-" if needed is None else f"does not fit: {memory(needed)}"

    def cells(self, case: Measured) -> list[str]:
        """The same of all kinds."""
        return [self.cell(case, kind) for kind in KINDS]

    def chosen(self, case: Measured) -> str:
        """The placer of the fastest plan."""
        return min((one for one in case.found if one.fits), key=_seconds).placer if self.winners(case) else "-"


def save(found: KindFindings, folder: Path, command: str) -> Path:
    """Write `plan_kinds.md` and its figure into a folder."""
    return save_document(
        "plan_kinds", "plan_kinds.md", folder, {"plan_kinds.png": (partial(_panels, found=found), 5.4)},
        command=command, found=found, kinds=KINDS, whole=WHOLE, placement=PLACEMENT, data=DATA, pipeline=PIPELINE,
        mixture=MIXTURE, models=MODELS, clusters=CLUSTERS, groups=GROUPS, equal=EQUAL,
        cases=sorted(found.cases, key=lambda case: (case.cluster, list(MODELS).index(case.model), case.devices)),
        budget=found.cases[0].budget,
    )  # fmt: skip


def _seconds(one: Found) -> float:
    return one.seconds


def _of(case: Measured, kind: str) -> list[Found]:
    return [one for one in case.found if one.kind == kind]


def _panels(figure: Figure, found: KindFindings) -> None:
    """A panel per model and cluster: milliseconds per sample over devices, a line per kind of plan that fits."""
    models, clusters = (list(dict.fromkeys(each)) for each in zip(*_named(found), strict=True))
    panels = figure.subplots(len(clusters), len(models), sharex=True, squeeze=False)
    for row, cluster in zip(panels, clusters, strict=True):
        for axes, model in zip(row, models, strict=True):
            cases = [case for case in found.cases if (case.model, case.cluster) == (model, cluster)]
            cases = sorted(cases, key=lambda case: case.devices)
            for kind in KINDS:
                fitting = [(case, one) for case in cases if (one := found.best(case, kind))]
                across = [case.devices for case, _ in fitting]
                up = [1e3 * one.seconds / case.samples for case, one in fitting]
                axes.plot(across, up, color=COLOURS[kind], marker=MARKS[kind], markersize=4, linewidth=1.4, label=kind)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(lambda value, _: f"{value:g}")
                axis.set_minor_formatter(NullFormatter())
            axes.set_title(f"{model}\n{cluster}", fontsize=8)
            axes.grid()
    for axes in panels[-1]:
        axes.set_xlabel("devices")
    figure.supylabel("milliseconds per sample", fontsize=9)
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(KINDS), fontsize=8)


def _named(found: KindFindings) -> list[tuple[str, str]]:
    """(model, cluster) of all cases, in the order of the study."""
    order = list(MODELS)
    named = {(case.model, case.cluster) for case in found.cases}
    return sorted(named, key=lambda pair: (order.index(pair[0]), pair[1]))
