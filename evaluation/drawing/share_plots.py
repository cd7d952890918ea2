"""A plot of what each device spends a step on, and of what it waits for."""

from __future__ import annotations

from functools import partial

import numpy as np
from matplotlib.figure import Figure

from envs.step_shares import SHARES, StepShares
from envs.timeline import Timeline
from evaluation import formatting
from evaluation.drawing.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, svg
from evaluation.drawing.shades import INK

COLOURS = {
    "forward": BLUE, "backward": ORANGE, "recomputation": SKY, "update": GREEN, "launch": INK, "transfers": GREY,
    "all_reduce": PURPLE, "bubble": "none",
}  # fmt: skip
DARK = ("forward", "update")  # white is legible on them
LEAST = 0.05  # of the step, for a share to be written into its bar


def share_bars(timeline: Timeline) -> str:
    """A bar per device, as long as the step: work, launches, and what idle time is spent waiting for."""
    paint, height = partial(_paint, timeline=timeline), 0.9 + 0.3 * len(timeline.problem.cluster)
    return svg(paint, height=height, description="What each device spends the step on")


def _paint(figure: Figure, timeline: Timeline) -> None:
    axes = figure.subplots()
    seconds = StepShares.of(timeline).seconds
    shares = seconds / (timeline.step_seconds or 1.0)  # (devices, shares)
    begin = np.cumsum(shares, axis=1) - shares
    rows = np.arange(len(shares))
    for column, name in enumerate(SHARES):
        if not shares[:, column].any():
            continue
        is_empty = COLOURS[name] == "none"
        axes.barh(
            rows, shares[:, column], left=begin[:, column], height=0.76, label=name.replace("_", "-"),
            color=COLOURS[name], edgecolor=GREY if is_empty else "none", linewidth=0.8 if is_empty else 0,
        )  # fmt: skip
        for row in np.flatnonzero(shares[:, column] >= LEAST).tolist():
            middle, ink = begin[row, column] + shares[row, column] / 2, "white" if name in DARK else "black"
            axes.text(
                middle, row, formatting.share(shares[row, column]), color=INK if is_empty else ink, fontsize=7,
                ha="center", va="center_baseline",
            )  # fmt: skip
    axes.set_yticks(rows, [device.name for device in timeline.problem.cluster.devices])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(shares) - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    figure.legend(loc="outside upper left", ncols=len(SHARES), fontsize=8, handlelength=1)
