"""Plots of one simulated step: what ran where and when, and the memory it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path as FilePath

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

from envs.costs.costs import timing
from envs.gantt import Row
from envs.pass_spans import SpanKind
from envs.timeline import Timeline
from evaluation import formatting
from evaluation.drawing.figures import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RED, save_figure, svg
from evaluation.drawing.pass_plots import OF_PASSES, label_passes
from evaluation.drawing.share_plots import share_bars
from evaluation.drawing.split_plots import split_chart
from evaluation.split_rows import split_rows
from graphs.foundation.quantities import binary_unit
from graphs.op_graph import Floats, Ints, Phase

LINKS = 16  # drawn in a Gantt chart: the busiest
DETAIL = 6000  # slices of the step in all rows of a chart together: bounds its size
FAR = 3.0  # times the peak

# What a row does: kinds, in their order, and their colours. Of an op placement the phases, then what links do.
COLOURS = {"forward": BLUE, "backward": ORANGE, "update": GREEN, "refresh": PURPLE, "transfer": GREY}
GAP = 0.0016  # of the step, after each pass that is much longer

Spans = tuple[Floats, Floats]  # start, finish: (spans,) seconds


def gantt_chart(timeline: Timeline) -> str:
    """A row per device and, below, for each of the 16 busiest links; coloured by the phase of the training step.

    Of a plan that is no op placement a device's row shows its passes, with their labels where they fit.
    """
    paint = partial(_paint_gantt, timeline=timeline)
    return svg(paint, height=_height(timeline), description="What each device and link did during the step")


def memory_curves(timeline: Timeline) -> str:
    """A panel per device: bytes held over the step (darker: parameters and the like), and the device's limit."""
    paint, height = partial(_paint_memory, timeline=timeline), 0.5 + 1.15 * len(timeline.problem.cluster)
    return svg(paint, height=height, description="Memory held on each device during the step")


def save_gantt(timeline: Timeline, path: FilePath) -> None:
    """Write the chart of what ran where: as PNG or SVG, or as a page (HTML) with more below.

    That is shares of the step, memory, and what tensors are divided by, if the plan has a split.

    Raises InputError for another ending.
    """
    held_under = f"order: {timeline.order}; cost model: {timing(timeline.problem)}"
    facts = f"One training step takes {formatting.seconds(timeline.step_seconds)} ({held_under})."
    if overflow := timeline.overflow():
        facts += f" It does not fit in memory: {overflow}."
    save_figure(
        path, partial(_paint_gantt, timeline=timeline), _height(timeline), what="a Gantt chart",
        name=timeline.problem.name, facts=facts,
        charts=lambda: [chart(timeline) for chart in (gantt_chart, share_bars, memory_curves)] + _splits(timeline),
    )  # fmt: skip


def save_gantts(timelines: Mapping[str, Timeline], path: FilePath) -> None:
    """Write a chart of several steps of one plan, by their names, such as predicted and measured.

    They are below one another, on one axis of time: PNG, SVG or a page (HTML), with shares of each step. Raises
    InputError for another ending.
    """
    paint, height = partial(_paint_gantts, timelines=timelines), 0.4 + sum(map(_height, timelines.values()))
    said = [f"{name} {formatting.seconds(timeline.step_seconds)}" for name, timeline in timelines.items()]
    save_figure(
        path, paint, height, what="a chart of steps", name=next(iter(timelines.values())).problem.name,
        facts=f"One training step takes: {', '.join(said)}.",
        charts=lambda: [svg(paint, height=height, description="What each device and link did during each step")]
        + [share_bars(timeline) for timeline in timelines.values()],
    )  # fmt: skip


def _splits(timeline: Timeline) -> list[str]:
    """A chart of what tensors are divided by, if the plan says it."""
    expansion = timeline.expansion
    is_split = expansion is not None and bool(expansion.plan.split)
    return [split_chart(split_rows(expansion.given, expansion.plan))] if expansion is not None and is_split else []


def _height(timeline: Timeline) -> float:
    return 0.9 + 0.26 * len(_shown(timeline))


def _paint_gantt(figure: Figure, timeline: Timeline) -> None:
    axes = figure.subplots()
    _legend(figure, _paint_step(axes, timeline, timeline.step_seconds))


def _paint_gantts(figure: Figure, timelines: Mapping[str, Timeline]) -> None:
    """Several steps below one another, on one axis of time."""
    heights = [len(_shown(timeline)) for timeline in timelines.values()]
    panels = figure.subplots(len(heights), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    longest = max(timeline.step_seconds for timeline in timelines.values())
    handles: dict[str, Patch] = {}
    for axes, (name, timeline) in zip(panels, timelines.items(), strict=True):
        handles |= {str(patch.get_label()): patch for patch in _paint_step(axes, timeline, longest)}
        axes.set_title(f"{name}: {formatting.seconds(timeline.step_seconds)}")
    _legend(figure, list(handles.values()))


def _legend(figure: Figure, handles: list[Patch]) -> None:
    figure.legend(handles=handles, loc="outside upper left", ncols=5, fontsize=8, handlelength=1)


def _paint_step(axes: Axes, timeline: Timeline, seconds: float) -> list[Patch]:
    """What a step did, on an axis of so many seconds; returns the entries of the legend."""
    rows = _shown(timeline)
    scale, unit = _unit(seconds)
    colours = COLOURS if timeline.passes is None else OF_PASSES
    used: set[str] = set()
    for position, row in enumerate(rows):
        for kind, (start, finish) in _spans(timeline, row, _slices(len(rows))).items():
            boxes = _boxes(start * scale, finish * scale, position)
            axes.add_patch(PathPatch(boxes, facecolor=colours[kind], linewidth=0))
            used.add(kind)
    passes = timeline.passes
    beside = [] if passes is None else label_passes(axes, passes, seconds, scale)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, seconds * scale or 1.0)
    axes.set_ylim(len(rows) - 0.4, -0.6)  # the first device on top
    axes.set_xlabel(unit)
    return [Patch(color=colour, label=kind) for kind, colour in colours.items() if kind in used] + beside


def _paint_memory(figure: Figure, timeline: Timeline) -> None:
    devices = len(timeline.problem.cluster)
    panels = figure.subplots(devices, 1, sharex=True, squeeze=False)[:, 0]
    for device, axes in enumerate(panels):
        _memory(axes, timeline, device, _slices(4 * devices))  # a slice takes four points
    panels[-1].set_xlabel(_unit(timeline.step_seconds)[1])


def _shown(timeline: Timeline) -> list[Row]:
    rows = timeline.chart().rows
    links = sorted((row for row in rows if row.link), key=lambda row: -float((row.finish - row.start).sum()))
    return [row for row in rows if not row.link or row in links[:LINKS]]


def _spans(timeline: Timeline, row: Row, slices: int) -> dict[str, Spans]:
    """When a row was busy with each kind of work; kinds that it never did are left out."""
    kinds, names = _kinds(timeline, row)
    took_time = row.finish > row.start
    each = [took_time & (kinds == kind) for kind in range(len(names))]
    spans = [(row.start[mine], row.finish[mine]) for mine in each]
    if len(row.op) > slices // 2:  # too many to be drawn one by one
        spans = _merged(spans, timeline.step_seconds, slices)
    elif timeline.passes is not None:  # neighbours of one kind are told apart
        gap = GAP * timeline.step_seconds
        spans = [(start, finish - np.where(finish - start > 4 * gap, gap, 0.0)) for start, finish in spans]
    return {name: span for name, span in zip(names, spans, strict=True) if len(span[0])}


def _kinds(timeline: Timeline, row: Row) -> tuple[Ints, list[str]]:
    """(entries,) the kind of each entry of a row, and the names of all kinds."""
    passes = timeline.passes
    if passes is None:
        return np.full(len(row.op), len(Phase)) if row.link else timeline.problem.graph.phase[row.op], list(COLOURS)
    return len(SpanKind) + timeline.is_sum[row.op] if row.link else passes.kind[row.op], list(OF_PASSES)


def _merged(spans: Sequence[Spans], step_seconds: float, slices: int) -> list[Spans]:
    """As many slices of the step as the row was busy for, spread as the work was; each the kind that has most of it.

    A slice is drawn whenever the busy time so far, in slices, passes the next half: rounded so, no time is lost, and a
    row that is busy for a third of the time, in spans too short to see, is shaded by a third.
    """
    edges = np.linspace(0.0, step_seconds, slices + 1)
    busy = np.array([_busy(edges, start, finish) for start, finish in spans])  # (kinds, slices) seconds
    so_far = np.concatenate([[0.0], np.cumsum(busy.sum(axis=0))]) * slices / step_seconds
    owner = np.where(np.diff(np.floor(so_far + 0.5)) > 0, busy.argmax(axis=0), -1)
    runs = []
    for kind in range(len(spans)):
        mine = np.concatenate([[False], owner == kind, [False]]).astype(np.int8)
        change = np.flatnonzero(np.diff(mine))
        runs.append((edges[change[::2]], edges[change[1::2]]))
    return runs


def _busy(edges: Floats, start: Floats, finish: Floats) -> Floats:
    """(slices,) seconds covered between each edge and the next; what overlaps, as multicast copies do, counts once."""
    times = np.unique(np.concatenate([edges, start, finish]))
    began = np.searchsorted(np.sort(start), times[:-1], "right")
    ended = np.searchsorted(np.sort(finish), times[:-1], "right")
    total = np.concatenate([[0.0], np.cumsum(np.diff(times) * (began > ended))])
    return np.diff(np.interp(edges, times, total))


def _boxes(start: Floats, finish: Floats, position: int) -> Path:
    """The boxes of a row as one path: an element of the page each would be many times the size."""
    low, high = np.full(len(start), position - 0.38), np.full(len(start), position + 0.38)
    corners = np.array([[start, start, finish, finish], [low, high, high, low]])  # (x and y, corners, boxes)
    return Path.make_compound_path_from_polys(corners.T)


def _memory(axes: Axes, timeline: Timeline, device: int, slices: int) -> None:
    problem = timeline.problem
    scale = _unit(timeline.step_seconds)[0]
    times, held = _thinned(*timeline.memory_curve(device), timeline.step_seconds, slices)
    limit, static = problem.cluster.memory_bytes[device], timeline.static_bytes[device]
    peak = timeline.peak_bytes[device]
    near = limit < FAR * peak  # a limit far above would flatten the curve; the title names it in any case
    top = max(peak, limit if near else 0.0, 1.0)
    size, unit = binary_unit(top)
    axes.stairs(held / size, times * scale, fill=True, color=BLUE, alpha=0.35, linewidth=0)
    axes.stairs([static / size], [0.0, times[-1] * scale], fill=True, color=BLUE, alpha=0.55, linewidth=0)
    axes.stairs(held / size, times * scale, baseline=None, color=BLUE, linewidth=1)
    if near:
        axes.axhline(limit / size, color=RED, linewidth=1.2, linestyle=(0, (5, 3)))
    of = f"{formatting.memory(peak)} of {formatting.memory(limit)}" if np.isfinite(limit) else formatting.memory(peak)
    verdict = ": does not fit" if peak > limit else ""
    name = problem.cluster.devices[device].name
    axes.set_title(f"{name}: peak {of}{verdict}", color=RED if verdict else INK)
    axes.set_xlim(0, timeline.step_seconds * scale or 1.0)
    axes.set_ylim(0, 1.12 * top / size)
    axes.set_ylabel(unit)


def _thinned(times: Floats, held: Floats, step_seconds: float, slices: int) -> tuple[Floats, Floats]:
    """Edges (steps + 1,) and what is held between them (steps,); of each slice of the step the most, for the peaks."""
    if len(times) > slices:
        slice_of = np.minimum(times / step_seconds * slices, slices - 1).astype(np.int64)
        first = np.unique(slice_of, return_index=True)[1]
        times, held = times[first], np.maximum.reduceat(held, first)
    return np.append(times, max(step_seconds, times[-1])), held


def _slices(rows: int) -> int:
    """For each row: narrower than a pixel of a laptop, if the rows are few."""
    return max(100, min(1000, DETAIL // rows))


def _unit(seconds: float) -> tuple[float, str]:
    """What to multiply seconds by, and the name of the result."""
    return (1.0, "seconds") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")
