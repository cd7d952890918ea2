"""A chart of what each device spends a step on, and of what it waits for."""

from __future__ import annotations

import numpy as np
from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, Range1d
from bokeh.plotting import figure

from envs.simulation.step_shares import SHARES, StepShares
from envs.timelines.timeline import Timeline
from evaluation.drawing.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY
from evaluation.drawing.interactive import LegendEntry, chart_html
from evaluation.drawing.shades import INK, TINT
from evaluation.records import formatting
from graphs.op_graph import Floats

COLOURS = {
    "forward": BLUE, "backward": ORANGE, "recomputation": SKY, "update": GREEN, "launch": "#7a5195",
    "transfers": GREY, "all_reduce": PURPLE, "bubble": TINT,
}  # fmt: skip
WORDS = {
    "transfers": "waits for transfers", "all_reduce": "waits for sums of gradients",
    "bubble": "bubble: waits for what another device still computes",
}  # fmt: skip
DARK = ("forward", "launch")  # white is legible on them
LEAST = 0.05  # of the step, for a share to be written into its bar
BAR, REST = 26, 12  # pixels: of a bar, and of what is above and below all
NAME, CHARACTER = 18, 6.6  # characters of a device's name, and pixels of each
FONT = "system-ui, sans-serif"


def share_bars(timeline: Timeline) -> str:
    """A bar per device, as long as the step: work, launches, and what idle time is spent waiting for; as HTML.

    The devices are those that compute something.
    """
    seconds = StepShares.of(timeline).seconds
    shown = np.flatnonzero(timeline.busy_seconds > 0).tolist()
    names = [timeline.problem.cluster.devices[device].name for device in shown]
    seconds = seconds[shown]
    shares = seconds / (timeline.step_seconds or 1.0)  # (devices, shares)
    begin = np.cumsum(shares, axis=1) - shares
    margin = int(CHARACTER * max((min(len(name), NAME) for name in names), default=0)) + 22
    plot = figure(
        sizing_mode="stretch_width", height=BAR * len(shown) + REST, min_border_left=margin, min_border_right=14,
        x_range=Range1d(start=0, end=1), y_range=Range1d(start=len(shown) - 0.5, end=-0.5), tools="",
        toolbar_location=None, background_fill_alpha=0, border_fill_alpha=0, outline_line_color=None,
    )  # fmt: skip
    legend = [_share(plot, name, names, seconds, shares, begin) for name in SHARES]
    plot.xaxis.visible = plot.grid.visible = False
    plot.yaxis.ticker = FixedTicker(ticks=list(range(len(shown))))
    plot.yaxis.major_label_overrides = {float(row): _short(name) for row, name in enumerate(names)}
    plot.yaxis.major_label_text_color, plot.yaxis.axis_line_color = INK, None
    plot.yaxis.major_tick_line_color = plot.yaxis.minor_tick_line_color = None
    return chart_html(plot, description="What each device spends the step on", legend=list(filter(None, legend)))


def _share(
    plot: figure, share: str, names: list[str], seconds: Floats, shares: Floats, begin: Floats
) -> LegendEntry | None:
    """The pieces of all bars that are of one share; returns its entry of the legend if there are any."""
    column, words = SHARES.index(share), WORDS.get(share, share)
    rows = np.flatnonzero(shares[:, column] > 0)
    if not len(rows):
        return None
    part, left = shares[rows, column], begin[rows, column]
    said = [formatting.share(each) for each in part.tolist()]
    source = ColumnDataSource({
        "y": rows, "left": left, "right": left + part, "middle": left + part / 2, "share": said,
        "text": [text if each >= LEAST else "" for text, each in zip(said, part.tolist(), strict=True)],
        "seconds": [formatting.seconds(each) for each in seconds[rows, column].tolist()],
        "device": [names[row] for row in rows.tolist()],
    })  # fmt: skip
    drawn = plot.hbar(
        y="y", left="left", right="right", height=0.76, source=source, fill_color=COLOURS[share],
        line_color=GREY if share == "bubble" else None, name=share,
    )  # fmt: skip
    ink = INK if share == "bubble" else "#ffffff" if share in DARK else "#000000"
    plot.text(
        x="middle", y="y", text="text", source=source, text_color=ink, text_align="center", text_baseline="middle",
        text_font_size="11px", text_font=value(FONT),
    )  # fmt: skip
    rows_said = [("device", "@device"), (words, "@share, @seconds")]
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=rows_said, visible=False, point_policy="follow_mouse"))
    return LegendEntry(words, "framed" if share == "bubble" else COLOURS[share])


def _short(name: str) -> str:
    return name if len(name) <= NAME else f"{name[: NAME // 2 - 1]}…{name[-NAME // 2 :]}"
