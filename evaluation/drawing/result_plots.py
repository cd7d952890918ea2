"""Plots of results: learning curves, and placers compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evaluation.comparison import Comparison
from evaluation.drawing.figures import BLUE, GREY, RED, svg
from evaluation.drawing.shades import INK
from graphs.op_graph import Floats

POINTS = 300  # per curve; more become their means
ACROSS = 3  # panels
MOST_PANELS = 24
LONGEST_BAR = 3.0  # ratio to the best; longer ones are cut

Metrics = Sequence[Mapping[str, float | None]]


@dataclass(frozen=True)
class Curve:
    """A column of a metrics file, and how to draw it."""

    column: str
    title: str  # says what is better
    noisy: bool = True  # draw a running mean over it


def learning_curve(
    metrics: Metrics, curves: Sequence[Curve], *, x: str = "simulations", levels: Mapping[str, float] | None = None
) -> str:
    """A panel per curve over a shared horizontal axis; `levels` are drawn into the first, by name, to compare with."""

    def paint(figure: Figure) -> None:
        panels = figure.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
        for axes, curve in zip(panels, curves, strict=True):
            _curve(axes, metrics, curve, x)
        _levels(panels[0], levels or {})
        panels[-1].set_xlabel(x.replace("_", " "))
        panels[-1].xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")

    described = "; ".join(curve.title for curve in curves)
    return svg(paint, height=0.6 + 1.7 * len(curves), description=f"Learning curves: {described}")


def comparison_bars(comparison: Comparison, *, highlight: Sequence[str] = ()) -> str:
    """A panel per problem, at most 24: a bar per placer, its step time over that of the best placer that fits."""
    problems = range(min(len(comparison.problems), MOST_PANELS))
    down = math.ceil(len(problems) / ACROSS)

    def paint(figure: Figure) -> None:
        panels = figure.subplots(down, min(ACROSS, len(problems)), sharex=True, sharey=True, squeeze=False).ravel()
        for axes in panels[len(problems) :]:
            axes.set_visible(False)
        for axes, problem in zip(panels, problems, strict=False):
            _bars(axes, comparison, problem, highlight)
        figure.supxlabel("step time over that of the best placer (1 is best, shorter is better)", fontsize=9)

    height = 0.5 + down * (0.45 + 0.17 * len(comparison.placers))
    return svg(paint, height=height, description="Step time of each placer over the best, by problem")


def column(metrics: Metrics, name: str) -> Floats:
    """(lines,) a column of a metrics file; NaN where a line lacks it."""
    values = [line.get(name) for line in metrics]
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _curve(axes: Axes, metrics: Metrics, curve: Curve, x: str) -> None:
    across, up = column(metrics, x), column(metrics, curve.column)
    there = np.isfinite(across) & np.isfinite(up)
    across, up = _binned(across[there], POINTS), _binned(up[there], POINTS)
    if curve.noisy:
        axes.plot(across, up, color=BLUE, linewidth=0.7, alpha=0.45)
        axes.plot(across, _running_mean(up), color=BLUE, linewidth=1.8)
    else:
        axes.step(across, up, where="post", color=BLUE, linewidth=1.8)
    axes.set_title(curve.title)
    axes.grid(axis="y")
    axes.margins(x=0.01)


def _levels(axes: Axes, levels: Mapping[str, float]) -> None:
    """Dashed lines with their names at the right, moved up where they would cover each other."""
    for level in levels.values():
        axes.axhline(level, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
    bottom, top = axes.get_ylim()
    lowest = bottom
    for name, level in sorted(levels.items(), key=lambda item: item[1]):
        height = max(level, lowest)
        axes.text(1.0, height, f" {name}", transform=axes.get_yaxis_transform(), va="center", fontsize=8)
        lowest = height + 0.09 * (top - bottom)


def _bars(axes: Axes, comparison: Comparison, problem: int, highlight: Sequence[str]) -> None:
    ratios = comparison.over_best[problem]
    limit = min(LONGEST_BAR, max(1.3, float(np.nanmax(np.append(comparison.over_best, 1.0)))))
    rows = np.arange(len(ratios))
    colours = [BLUE if placer in highlight else GREY for placer in comparison.placers]
    axes.barh(rows, np.minimum(np.nan_to_num(ratios), limit), color=colours, height=0.72)
    for row, ratio in enumerate(ratios):
        if math.isnan(ratio):
            missing = math.isnan(comparison.step_seconds[problem, row])
            text = "not run" if missing else "does not fit"
            axes.text(0.03, row, text, va="center", fontsize=7.5, color=INK if missing else RED, style="italic")
        else:
            cut = "…" if ratio > limit else ""
            weight = "bold" if ratio == 1.0 else "normal"
            axes.text(min(ratio, limit), row, f" {cut}{ratio:.2f}", va="center", fontsize=7.5, fontweight=weight)
    axes.axvline(1.0, color=INK, linewidth=0.7, alpha=0.6)
    axes.set_yticks(rows, [comparison.labels[placer] for placer in comparison.placers], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, limit * 1.22)
    axes.set_ylim(len(ratios) - 0.4, -0.6)  # the first placer on top
    axes.set_title("\n@".join(comparison.problems[problem].rsplit("@", 1)), fontsize=8)


def _binned(values: Floats, points: int) -> Floats:
    """Means of equally many neighbours each."""
    if len(values) <= points:
        return values
    return np.array([part.mean() for part in np.array_split(values, points)])


def _running_mean(values: Floats) -> Floats:
    """Over a tenth of the points around each; over fewer near the ends, so that it leans to neither side."""
    here = np.arange(len(values))
    reach = np.minimum(len(values) // 20, np.minimum(here, here[::-1]))
    total = np.concatenate([[0.0], np.cumsum(values)])
    mean: Floats = (total[here + reach + 1] - total[here - reach]) / (2 * reach + 1)
    return mean
