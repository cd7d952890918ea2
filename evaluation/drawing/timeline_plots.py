"""Files of steps: what ran where and when, as an image, or as a page with an interactive chart."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path as FilePath

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

from envs.costs.costs import timing
from envs.timelines.last_inputs import Waits
from envs.timelines.timeline import Timeline
from evaluation.drawing.figures import save_figure
from evaluation.drawing.pass_labels import write_labels
from evaluation.drawing.plan_moves import moves_table
from evaluation.drawing.sections import SPENT, Sheet, sheets_html, step_summary_html, time_sheet
from evaluation.drawing.split_plots import split_chart
from evaluation.drawing.step_boxes import StepLanes
from evaluation.drawing.step_figure import COLOURS, LIGHTER, lighter, step_chart, time_unit
from evaluation.records import formatting
from evaluation.tables.split_rows import split_rows
from evaluation.tables.step_summary import TimeSpent
from graphs.op_graph import Floats, Ints

MOST_BOXES = 6_000  # in a picture: bounds its size
GAP = 0.0016  # of the step, after each pass that is much longer


def save_steps(timelines: Mapping[str, Timeline], path: FilePath) -> None:
    """Write a chart of one step, or of several below one another on one axis of time, such as predicted and measured.

    Their names are the headings. It is a PNG, an SVG, or a page (HTML) to zoom into and to ask, with memory on the same
    axis. Above it is what is asked first; below are what two plans place on other devices, what several steps
    are spent on, and what tensors are divided by, if a plan has a split. Raises InputError for another ending.
    """
    drawn = {} if path.suffix == ".html" else timelines
    steps = {name: StepLanes.of(timeline, MOST_BOXES // len(timelines)) for name, timeline in drawn.items()}
    height = 0.4 + sum(0.9 + 0.26 * len(step.lanes) for step in steps.values())
    name = next(iter(timelines.values())).problem.name
    save_figure(
        path, partial(_paint_steps, steps=steps), height, what="a Gantt chart", name=name, facts=_facts(timelines),
        charts=lambda: _summary(timelines)
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


def _paint_steps(figure: Figure, steps: Mapping[str, StepLanes]) -> None:
    """Several steps below one another, on one axis of time."""
    heights = [len(step.lanes) or 1 for step in steps.values()]
    panels = figure.subplots(len(heights), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    longest = max(step.timeline.step_seconds for step in steps.values())
    handles: dict[str, Patch] = {}
    for axes, (name, step) in zip(panels, steps.items(), strict=True):
        handles |= {str(patch.get_label()): patch for patch in _paint_step(axes, step, longest)}
        if name:
            axes.set_title(f"{name}: {formatting.seconds(step.timeline.step_seconds)}")
    figure.legend(handles=list(handles.values()), loc="outside upper left", ncols=5, fontsize=8, handlelength=1)


def _paint_step(axes: Axes, step: StepLanes, seconds: float) -> list[Patch]:
    """The lanes of a step, on an axis of this length; returns the entries of the legend."""
    boxes, (scale, unit) = step.boxes, time_unit(seconds)
    # neighbouring passes of one kind are told apart
    gap = GAP * step.timeline.step_seconds if step.labels else 0.0
    finish = boxes.finish - np.where(boxes.finish - boxes.start > 4 * gap, gap, 0.0)
    looks = np.stack([boxes.kind, step.later, step.filled.round(1)], axis=1)
    for look in np.unique(looks, axis=0):
        kind, shade, filled = look.tolist()
        mine = (looks == look).all(axis=1)
        path = _path(boxes.start[mine] * scale, finish[mine] * scale, boxes.lane[mine])
        colour = lighter(COLOURS[step.kinds[int(kind)]], LIGHTER * shade)
        axes.add_patch(PathPatch(path, facecolor=colour, alpha=filled, linewidth=0))
    write_labels(axes, step, seconds, scale)
    axes.set_yticks(range(len(step.lanes)), [lane.label for lane in step.lanes])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, seconds * scale or 1.0)
    axes.set_ylim(len(step.lanes) - 0.4, -0.6)  # the first device on top
    axes.set_xlabel(unit)
    used = {step.kinds[kind] for kind in boxes.kind.tolist()}
    legend = [Patch(color=colour, label=kind) for kind, colour in COLOURS.items() if kind in used]
    return legend + ([Patch(color="#bfdbec", label="lighter: later stages")] if step.later.any() else [])


def _path(start: Floats, finish: Floats, lane: Ints) -> Path:
    """Boxes as one path: an element of the page each would be many times the size."""
    low, high = lane - 0.38, lane + 0.38
    corners = np.array([[start, start, finish, finish], [low, high, high, low]])  # (x and y, corners, boxes)
    return Path.make_compound_path_from_polys(corners.T)
