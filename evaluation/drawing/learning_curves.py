"""Learning curves of one run or of several on one axis, those of several seeds as mean and band, by Bokeh."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from bokeh.layouts import column as stacked
from bokeh.models import (
    BoxZoomTool,
    ColumnDataSource,
    DataRange1d,
    HoverTool,
    NumeralTickFormatter,
    PanTool,
    Range1d,
    ResetTool,
    SaveTool,
    WheelZoomTool,
)
from bokeh.models.annotations import Label, Span, Title
from bokeh.plotting import figure

from evaluation.drawing.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY
from evaluation.drawing.interactive import LegendEntry, chart_html, style_axes
from evaluation.drawing.shades import INK, LINE, SOFT
from graphs.op_graph import Floats

POINTS = 4000  # per curve; more become their means
PARTS = 20  # a running mean is over a point and this part of all points on either side
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED)
DASHES = ("solid", "dashed", "dotted")  # of the first runs, and of further ones in the same colours
HEIGHT, AXIS, LABEL, LEFT = 190, 42, 15, 54  # pixels
HINT = "Point at a curve for its numbers; drag to enlarge a part, and the round arrow shows all again."

Metrics = Sequence[Mapping[str, float | None]]
Runs = Mapping[str, Sequence[Metrics]]  # by name, the metrics of a run, or of each seed of a recipe


@dataclass(frozen=True)
class Curve:
    """A column of a metrics file, and how to draw it."""

    column: str
    title: str  # says what is better
    kind: Literal["noisy", "best", "points"] = "noisy"  # with a running mean; kept until a better one comes; few


def learning_curves(
    runs: Runs, curves: Sequence[Curve], *, x: str = "simulations", levels: Mapping[str, float] | None = None
) -> str:
    """An HTML element: a panel per curve over a shared horizontal axis, a colour per name; names are the legend.

    Of several seeds the mean is drawn and, behind it, a band from the least to the largest, as long as all went on.
    `levels` are drawn into the first panel, by name, to compare with.
    """
    shared = DataRange1d(range_padding=0.01, only_visible=True)
    panels = [_panel(runs, curve, x, shared, is_last=curve is curves[-1]) for curve in curves]
    _draw_levels(panels[0], runs, curves[0], levels or {})
    described = "; ".join(curve.title for curve in curves)
    return chart_html(
        stacked(*panels, sizing_mode="stretch_width"), description=f"Learning curves: {described}",
        legend=_legend(runs, curves), hint=HINT,
    )  # fmt: skip


def column(metrics: Metrics, name: str) -> Floats:
    """(lines,) a column of a metrics file; NaN where a line lacks it."""
    values = [line.get(name) for line in metrics]
    return np.array([np.nan if value is None else value for value in values], np.float64)


def running_mean(values: Floats) -> tuple[Floats, int]:
    """Means over a tenth of the points, and the number of points before the first of them.

    Only where the whole tenth is there: a mean over fewer, at the ends, would swing as if something had happened.
    """
    reach = len(values) // PARTS
    total = np.concatenate([[0.0], np.cumsum(values)])
    width = 2 * reach + 1
    return (total[width:] - total[:-width]) / width, reach


def _legend(runs: Runs, curves: Sequence[Curve]) -> list[LegendEntry]:
    if len(runs) > 1:
        return [LegendEntry(name, _colour(number), (f"run{number}",)) for number, name in enumerate(runs)]
    if not any(curve.kind == "noisy" for curve in curves) or len(next(iter(runs.values()))) > 1:
        return []
    return [LegendEntry("running mean", BLUE, ("run0",)), LegendEntry("every update", "#99c7e0", ("raw0",))]


def _panel(runs: Runs, curve: Curve, x: str, shared: DataRange1d, *, is_last: bool) -> figure:
    at_left: Any = {"offset": -LEFT}  # Bokeh's types do not know it
    title = Title(text=curve.title, text_color=INK, text_font_size="12px", text_font_style="normal", **at_left)
    plot = figure(
        title=title, sizing_mode="stretch_width", height=HEIGHT + AXIS * is_last, x_range=shared,
        y_range=DataRange1d(range_padding=0.06), tools="", toolbar_location="above" if is_last else None,
        min_border_left=LEFT, min_border_right=12, background_fill_alpha=0, border_fill_alpha=0,
        outline_line_color=None,
    )  # fmt: skip
    _style(plot, x if is_last else "")
    means = []
    for number, seeds in enumerate(runs.values()):
        across, each = _aligned(seeds, x, curve.column)
        if curve.kind == "noisy":
            if len(seeds) == 1:
                raw = f"raw{number}" if len(runs) == 1 else f"run{number}"
                plot.line(across, each[0], color=_colour(number), line_width=1, line_alpha=0.3, name=raw)
            each, before = np.array([running_mean(up)[0] for up in each]), len(across) // PARTS
            across = across[before : before + each.shape[1]]
        if len(seeds) > 1:
            low, high = each.min(axis=0), each.max(axis=0)
            plot.varea(across, low, high, fill_color=_colour(number), fill_alpha=0.2, name=f"run{number}")
        given: Any = {
            "source": ColumnDataSource({"x": across, "y": each.mean(axis=0)}), "color": _colour(number),
            "line_width": 2, "line_dash": DASHES[number // len(COLOURS) % len(DASHES)], "name": f"run{number}",
        }  # fmt: skip
        means.append(
            plot.step("x", "y", mode="after", **given) if curve.kind == "best" else plot.line("x", "y", **given)
        )
        if curve.kind == "points":
            plot.scatter("x", "y", source=given["source"], color=_colour(number), size=7, name=f"run{number}")
    for drawn, name in zip(means, runs, strict=True):
        rows = [(x, "@x{0,0}"), ("value", "@y{0.000}")]
        shown = [("run", name), *rows] if len(runs) > 1 else rows
        plot.add_tools(HoverTool(renderers=[drawn], tooltips=shown, mode="vline", visible=False))
    return plot


def _style(plot: figure, label: str) -> None:
    zoom = BoxZoomTool()
    plot.add_tools(zoom, PanTool(), WheelZoomTool(modifiers="ctrl"), ResetTool(), SaveTool())
    plot.toolbar.active_drag, plot.toolbar.logo = zoom, None
    plot.xgrid.visible = False
    plot.ygrid.grid_line_color = LINE
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.xaxis.axis_label = label.replace("_", " ") or None
    style_axes(plot)
    if not label:
        plot.xaxis.major_label_text_font_size = "0px"


def _draw_levels(plot: figure, runs: Runs, curve: Curve, levels: Mapping[str, float]) -> None:
    """Dashed lines with their names at the left, moved up where they would cover each other."""
    if not levels:
        return
    known = [column(metrics, curve.column) for seeds in runs.values() for metrics in seeds]
    values = np.concatenate([*known, list(levels.values())])
    bottom, top = float(np.nanmin(values)), float(np.nanmax(values))
    height = (top - bottom) or abs(top) or 1.0
    low, high = bottom - 0.1 * height, top + (0.1 + LABEL / HEIGHT * len(levels)) * height
    plot.y_range = Range1d(start=low, end=high)
    line = LABEL / HEIGHT * (high - low)
    lowest = -np.inf
    for name, level in sorted(levels.items(), key=lambda item: item[1]):
        plot.add_layout(Span(location=level, dimension="width", line_color=GREY, line_dash="dashed", line_width=1))
        lowest = max(level, lowest)
        plot.add_layout(
            Label(
                x=6,
                x_units="screen",
                y=lowest,
                text=f"{name}, {level:.3g}",  # the name may be above another line
                text_baseline="bottom",
                text_color=SOFT,
                text_font_size="11px",
            )
        )
        lowest += line


def _aligned(seeds: Sequence[Metrics], x: str, name: str) -> tuple[Floats, Floats]:
    """(points,) of x, and (seeds, points) of a column, line by line where all seeds have one."""
    lines = min(map(len, seeds))
    across, each = (np.array([column(metrics[:lines], key) for metrics in seeds]) for key in (x, name))
    there = np.isfinite(across).all(axis=0) & np.isfinite(each).all(axis=0)
    return _binned(across[:, there].mean(axis=0)), np.array([_binned(up) for up in each[:, there]])


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _binned(values: Floats) -> Floats:
    """Means of equally many neighbours each."""
    if len(values) <= POINTS:
        return values
    return np.array([part.mean() for part in np.array_split(values, POINTS)])
