"""The answers of studies whose tables are long, as pictures: a row of dots for each row of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from evaluation.drawing.figures import BLUE, GREEN, ORANGE, PURPLE, RED, SKY, drawn
from evaluation.studies.pictures.document_tables import Measured, rows_of

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY, "black")
MARKERS = "osD^vPX"


@dataclass(frozen=True)
class Answer:
    """What to draw of the first table of a document that has the columns."""

    document: str
    label: tuple[str, ...]  # the columns that say what a row is
    series: Mapping[str, str]  # columns with numbers, and what to call them
    axis: str
    unit: str = ""  # the column whose number all others of a row are divided by
    line: float = 1.0  # where a line is drawn
    limits: tuple[float, float] | None = None

    def picture(self) -> bytes:
        """The file, as SVG."""
        rows = rows_of(self.document, (*self.label, *self.series))
        height = 0.9 + max(0.24, 0.09 * len(self.series)) * len(rows) + 0.25 * (len(self.series) > 1)  # inches
        paint = partial(self._paint, rows=rows)
        return drawn(paint, height, "svg", facecolor="white", metadata={"Date": None})

    def _paint(self, figure: Figure, rows: list[dict[str, str]]) -> None:
        axes = figure.subplots()
        places = np.arange(len(rows))
        apart = np.linspace(-0.22, 0.22, len(self.series)) if len(self.series) > 1 else [0.0]
        for (column, name), colour, marker, shift in zip(self.series.items(), COLOURS, MARKERS, apart, strict=False):
            units = [Measured.of(row[self.unit]).value if self.unit else 1.0 for row in rows]
            found = [Measured.of(row[column]).over(unit) for row, unit in zip(rows, units, strict=True)]
            ends = np.array([(each.value - each.low, each.high - each.value) for each in found]).T
            axes.errorbar([each.value for each in found], places + shift, xerr=np.maximum(ends, 0.0), fmt=marker,
                          color=colour, markersize=4, elinewidth=1, label=name)  # fmt: skip
        labels = [", ".join(row[column] for column in self.label if row[column]) for row in rows]
        axes.axvline(self.line, color="black", linewidth=0.6, alpha=0.5)
        axes.set_yticks(places, labels, fontsize=8)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="both")
        axes.set_xlabel(self.axis)
        if self.limits is not None:
            axes.set_xlim(*self.limits)
        if len(self.series) > 1:
            figure.legend(loc="outside upper left", ncols=len(self.series), handlelength=1, fontsize=8)


def _archived(name: str) -> str:
    return f"docs/results/archive/{name}.md"


def _same(*columns: str) -> dict[str, str]:
    return {column: column for column in columns}


ANSWERS = {
    "placers": Answer(
        "docs/results.md", ("placer",), {"step time over best known": "step time"},
        "step time over the best known placement",
    ),
    "whole_plans": Answer(
        _archived("whole_plans"), ("model", "cluster"), _same("no simulation", "best of 16"),
        "step time over the planner's", limits=(0.9, 1.5),
    ),
    "splits": Answer(
        "evaluation/studies/splits/splits.md", ("model",), _same("data_parallel", "tensor_parallel", "tofu", "optcnn"),
        "step time over that of split_search", unit="split_search",
    ),
    "order": Answer(
        _archived("order"), ("family",), {"program over fifo": "program", "longest_path over fifo": "longest_path"},
        "step time of the same plans over that under fifo",
    ),
    "fixed_rules": Answer(
        _archived("optimal_orders"), ("problem",), _same("fifo", "program", "longest_path"),
        "step time of the best placement under a rule, over the best plan's",
    ),
    "units": Answer(
        _archived("grain"), ("simulations",), _same("32", "64", "128", "256", "512", "1024", "op by op"),
        "step time over the best known, by op groups",
    ),
    "starts": Answer(
        _archived("starts"), ("placer",), {"over the best": "step time"}, "step time over that of the best start",
    ),
    "kept": Answer(
        _archived("gains"), ("model", "plan"), _same("first come", "program order", "parallelize", "deferred"),
        "share of the simulated gain that is kept", limits=(-0.2, 1.05),
    ),
}  # fmt: skip
