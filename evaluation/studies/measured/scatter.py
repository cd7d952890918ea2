"""The scatter of the study: each measured step a point, by its seconds and by predicted over measured ones."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from evaluation.drawing.figures import BLUE, GREY, ORANGE
from evaluation.studies.measured.findings import Compared, Errors, VariantFindings

HEIGHT = 3.2  # inches
RATIOS = (0.5, 0.7, 0.9, 1.0, 1.1, 1.4, 2.0)
CLOSE = 0.1  # of the band


def paint(figure: Figure, found: VariantFindings) -> None:
    """All steps whose seconds mean something by themselves; those that may set constants are grey."""
    axes = figure.subplots()
    axes.axhspan(1 - CLOSE, 1 + CLOSE, color=GREY, alpha=0.15, linewidth=0)
    axes.axhline(1.0, color="black", linewidth=0.6)
    for colour, name, some in _kinds(found):
        if some:
            at, ratios = [each.row.seconds for each in some], [1 + each.error for each in some]
            error = Errors.of(each.error for each in some).size
            label = f"{name}: {len(some):,} steps, median error {error:.1%}"
            axes.plot(at, ratios, "o", color=colour, markersize=3, markeredgewidth=0, alpha=0.7, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(FixedLocator(list(RATIOS)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("seconds of a step, measured")
    axes.set_ylabel("predicted over measured")
    figure.legend(loc="outside upper left", handlelength=1, fontsize=8)


def _kinds(found: VariantFindings) -> list[tuple[str, str, Sequence[Compared]]]:
    """Colour, name and steps; what is drawn first is beneath."""
    alone = [each for each in found.timed if each.row.gpus == 1]
    several = [each for each in found.timed if each.row.gpus > 1]
    return [
        (GREY, "may set constants", found.setting), (BLUE, "several GPUs", several), (ORANGE, "one GPU", alone)
    ]  # fmt: skip
