"""The same model's step on four devices under two plans: an expert's, and placelab's."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from envs.timelines.timeline import Timeline
from evaluation.commands.graph_verbs import place
from evaluation.drawing.figures import BLUE, GREEN, ORANGE, drawn
from graphs.op_graph import Bools, Phase

MODEL, CLUSTER = "gnmt:layers=8,steps=8,hidden=1024,batch=256", "p100x4"
COLOURS = {"forward pass": BLUE, "backward pass": ORANGE, "update of weights": GREEN}  # by phase
PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE)
IDLE = "#eceef1"
SLICES = 700  # of the width: about a pixel each on a page of GitHub's
HEIGHT = 3.6  # inches


def picture() -> bytes:
    """The file, as SVG."""
    expert = place(MODEL, cluster=CLUSTER, placer="human_expert").timeline
    found = place(MODEL, cluster=CLUSTER, plans="placement").timeline
    titles = {"An expert's plan: layers in order": expert, "placelab's plan": found}
    return drawn(lambda figure: paint(figure, titles), HEIGHT, "svg", facecolor="white", metadata={"Date": None})


def paint(figure: Figure, timelines: dict[str, Timeline]) -> None:
    """Steps below one another, on one axis of time."""
    longest = 1e3 * max(timeline.step_seconds for timeline in timelines.values())
    panels = figure.subplots(len(timelines), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (title, timeline) in zip(panels, timelines.items(), strict=True):
        seconds = timeline.step_seconds
        _paint_step(axes, timeline, slices=round(SLICES * 1e3 * seconds / longest))
        busy = timeline.busy_seconds.mean() / seconds
        axes.set_title(f"{title}: {1e3 * seconds:.0f} ms a step, devices are busy {busy:.0%} of it")
        axes.set_xlim(0, longest)
    panels[-1].set_xlabel("milliseconds")
    handles = [Patch(color=colour, label=name) for name, colour in [*COLOURS.items(), ("idle", IDLE)]]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, handlelength=1)


def _paint_step(axes: Axes, timeline: Timeline, slices: int) -> None:
    """A row per device: its phases, and grey for the whole step behind them."""
    devices = timeline.problem.cluster.devices
    width = 1e3 * timeline.step_seconds / slices
    for row in range(len(devices)):
        axes.broken_barh([(0.0, 1e3 * timeline.step_seconds)], (row - 0.4, 0.8), color=IDLE, linewidth=0)
        for is_run, colour in zip(_runs(timeline, row, slices), COLOURS.values(), strict=True):
            change = np.flatnonzero(np.diff(np.concatenate([[0], is_run.astype(np.int8), [0]])))
            spans = [(first * width, (last - first) * width) for first, last in change.reshape(-1, 2).tolist()]
            axes.broken_barh(spans, (row - 0.4, 0.8), color=colour, linewidth=0)
    axes.set_yticks(range(len(devices)), [device.name for device in devices])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(devices) - 0.5, -0.5)  # the first device on top


def _runs(timeline: Timeline, device: int, slices: int) -> Bools:
    """(phases, slices) in which slices of the step a device was busy for half the time, and with which phase most."""
    edges = np.linspace(0.0, timeline.step_seconds, slices + 1)
    busy = np.zeros((len(PHASES), slices))
    for index, phase in enumerate(PHASES):
        here = (timeline.placement == device) & (timeline.problem.graph.phase == phase)
        for start, finish in zip(timeline.start[here], timeline.finish[here], strict=True):
            busy[index] += np.diff(np.clip(edges, start, finish))
    is_most = np.arange(len(PHASES))[:, None] == busy.argmax(axis=0)
    is_run: Bools = is_most & (busy.sum(axis=0) >= 0.5 * edges[1])
    return is_run
