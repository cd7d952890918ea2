"""The answers of studies whose tables are long, as pictures: a row of dots for each row of a table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from evaluation.drawing.figures import BLUE, GREEN, ORANGE, PURPLE, drawn
from evaluation.studies.pictures.document_tables import Measured, rows_of

COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
MARKERS = "osD^"


@dataclass(frozen=True)
class Answer:
    """What to draw of the first table of a document that has the columns."""

    document: str
    label: str  # the column that says what a row is
    series: tuple[str, ...]  # columns with numbers
    axis: str

    def picture(self) -> bytes:
        """The file, as SVG."""
        rows = rows_of(self.document, (self.label, *self.series))
        height = 0.9 + max(0.24, 0.09 * len(self.series)) * len(rows) + 0.25 * (len(self.series) > 1)  # inches
        paint = partial(self._paint, rows=rows)
        return drawn(paint, height, "svg", facecolor="white", metadata={"Date": None})

    def _paint(self, figure: Figure, rows: list[dict[str, str]]) -> None:
        axes = figure.subplots()
        places = np.arange(len(rows))
        apart = np.linspace(-0.22, 0.22, len(self.series)) if len(self.series) > 1 else [0.0]
        for column, colour, marker, shift in zip(self.series, COLOURS, MARKERS, apart, strict=False):
            found = [Measured.of(row[column]) for row in rows]
            ends = np.array([(each.value - each.low, each.high - each.value) for each in found]).T
            axes.errorbar([each.value for each in found], places + shift, xerr=np.maximum(ends, 0.0), fmt=marker,
                          color=colour, markersize=4, elinewidth=1, label=column)  # fmt: skip
        axes.axvline(1.0, color="black", linewidth=0.6, alpha=0.5)
        axes.set_yticks(places, [row[self.label] for row in rows], fontsize=8)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="both")
        axes.set_xlabel(self.axis)
        if len(self.series) > 1:
            figure.legend(loc="outside upper left", ncols=len(self.series), handlelength=1, fontsize=8)


ANSWERS = {
    "placers": Answer(
        "docs/results.md", "placer", ("step time over best known",), "step time over the best known placement",
    ),
}  # fmt: skip
