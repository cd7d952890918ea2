"""Files of steps: what ran where and when, as an image, or as a page with an interactive chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path as FilePath

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

from envs.costs.costs import timing
from envs.timelines.gantt import GanttRow
from envs.timelines.last_inputs import Waits
from envs.timelines.pass_spans import SpanKind
from envs.timelines.timeline import Timeline
from evaluation.drawing.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, save_figure
from evaluation.drawing.pass_plots import OF_PASSES, label_passes
from evaluation.drawing.plan_moves import moves_table
from evaluation.drawing.sections import SPENT, Sheet, sheets_html, step_summary_html, time_sheet
from evaluation.drawing.split_plots import split_chart
from evaluation.drawing.step_figure import step_chart, time_unit
from evaluation.records import formatting
from evaluation.tables.split_rows import split_rows
from evaluation.tables.step_summary import TimeSpent
from graphs.op_graph import Floats, Ints, Phase

LINKS = 16  # drawn in a Gantt chart: the busiest
DETAIL = 6000  # slices of the step in all rows of a chart together: bounds its size

# What a row does: kinds, in their order, and their colours. Of an op placement the phases, then what links do.
COLOURS = {"forward": BLUE, "backward": ORANGE, "update": GREEN, "refresh": PURPLE, "transfer": GREY}
GAP = 0.0016  # of the step, after each pass that is much longer

Spans = tuple[Floats, Floats]  # start, finish: (spans,) seconds


def save_steps(timelines: Mapping[str, Timeline], path: FilePath) -> None:
    """Write a chart of one step, or of several below one another on one axis of time, such as predicted and measured.

    Their names are the headings. It is a PNG, an SVG, or a page (HTML) to zoom into and to ask, with memory on the same
    axis. Above it is what is asked first; below are what two plans place on other devices, what several steps
    are spent on, and what tensors are divided by, if a plan has a split. Raises InputError for another ending.
    """
    paint, height = partial(_paint_steps, timelines=timelines), 0.4 + sum(map(_height, timelines.values()))
    save_figure(
        path, paint, height, what="a Gantt chart", name=next(iter(timelines.values())).problem.name,
        facts=_facts(timelines), charts=lambda: _summary(timelines)
        + [step_chart(timelines), *_moved(timelines), *_spent(timelines)]
        + [chart for timeline in timelines.values() for chart in _splits(timeline)],
    )  # fmt: skip


def _summary(timelines: Mapping[str, Timeline]) -> list[str]:
    """What is asked first of a step; of several, a row of a table each."""
    if len(timelines) == 1:
        return [step_summary_html(timeline) for timeline in timelines.values()]
    heads = ("", "step", "times the shortest", "its critical path computes", "and transfers", "order", "fits in memory")
    shortest = min(timeline.step_seconds for timeline in timelines.values())
    rows = tuple(
        (name, formatting.seconds(timeline.step_seconds), formatting.ratio(timeline.step_seconds / (shortest or 1.0)),
         *map(formatting.seconds, _critical(timeline)), str(timeline.order), "no" if timeline.overflow() else "yes")
        for name, timeline in timelines.items()
    )  # fmt: skip
    return [sheets_html(Sheet(heads, rows, is_wide=True))]


def _facts(timelines: Mapping[str, Timeline]) -> str:
    """What a step takes, and what its critical path consists of; of several, how they compare."""
    steps = list(timelines.items())
    missing = [(name, timeline.overflow()) for name, timeline in steps if timeline.overflow()]
    over = "".join(f" {name or 'It'} does not fit in memory: {overflow}." for name, overflow in missing)
    if len(steps) > 1:
        said = ", ".join(f"{formatting.seconds(timeline.step_seconds)} ({name})" for name, timeline in steps)
        return f"One training step takes {said}. Cost model: {timing(steps[0][1].problem)}.{over}"
    [(_, timeline)] = steps
    held_under = f"order: {timeline.order}; cost model: {timing(timeline.problem)}"
    said = f"One training step takes {formatting.seconds(timeline.step_seconds)} ({held_under})."
    on_ops, on_transfers = map(formatting.seconds, _critical(timeline))
    return f"{said} Its critical path computes for {on_ops} and transfers for {on_transfers}.{over}"


def _critical(timeline: Timeline) -> tuple[float, float]:
    """Seconds that the ops and the transfers of the critical path take."""
    ops, transfers = Waits.of(timeline).critical_path()
    moved = timeline.transfers
    on_ops, on_transfers = (timeline.finish - timeline.start)[ops], (moved.finish - moved.start)[transfers]
    return float(on_ops.sum()), float(on_transfers.sum())


def _spent(timelines: Mapping[str, Timeline]) -> list[str]:
    """What devices spend each of several steps on; of one, the summary says it."""
    if len(timelines) == 1:
        return []
    sheets = [time_sheet(TimeSpent.of(timeline), name) for name, timeline in timelines.items()]
    title = f'<h2>What each device spends the step on</h2><p class="note">{SPENT}</p>'
    return [Markup(title) + sheets_html(*sheets)]


def _moved(timelines: Mapping[str, Timeline]) -> list[str]:
    """A table of what two plans place on other devices, if they do."""
    table = moves_table(list(timelines), *timelines.values()) if len(timelines) == 2 else ""
    return [table] if table else []


def _splits(timeline: Timeline) -> list[str]:
    """A chart of what tensors are divided by, if the plan says it."""
    expansion = timeline.expansion
    is_split = expansion is not None and bool(expansion.plan.split)
    if expansion is None or not is_split:
        return []
    title = "<h2>By which dimension each tensor is divided</h2>"
    return [title + split_chart(split_rows(expansion.given, expansion.plan))]


def _height(timeline: Timeline) -> float:
    return 0.9 + 0.26 * len(_shown(timeline))


def _paint_steps(figure: Figure, timelines: Mapping[str, Timeline]) -> None:
    """Several steps below one another, on one axis of time."""
    heights = [len(_shown(timeline)) for timeline in timelines.values()]
    panels = figure.subplots(len(heights), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    longest = max(timeline.step_seconds for timeline in timelines.values())
    handles: dict[str, Patch] = {}
    for axes, (name, timeline) in zip(panels, timelines.items(), strict=True):
        handles |= {str(patch.get_label()): patch for patch in _paint_step(axes, timeline, longest)}
        if name:
            axes.set_title(f"{name}: {formatting.seconds(timeline.step_seconds)}")
    figure.legend(handles=list(handles.values()), loc="outside upper left", ncols=5, fontsize=8, handlelength=1)


def _paint_step(axes: Axes, timeline: Timeline, seconds: float) -> list[Patch]:
    """What a step did, on an axis of this length; returns the entries of the legend."""
    rows = _shown(timeline)
    scale, unit = time_unit(seconds)
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


def _shown(timeline: Timeline) -> list[GanttRow]:
    rows = timeline.chart().rows
    links = sorted((row for row in rows if row.link), key=lambda row: -float((row.finish - row.start).sum()))
    return [row for row in rows if not row.link or row in links[:LINKS]]


def _spans(timeline: Timeline, row: GanttRow, slices: int) -> dict[str, Spans]:
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


def _kinds(timeline: Timeline, row: GanttRow) -> tuple[Ints, list[str]]:
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


def _slices(rows: int) -> int:
    """For each row: narrower than a pixel of a laptop, if the rows are few."""
    return max(100, min(1000, DETAIL // rows))
