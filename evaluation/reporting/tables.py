"""Tables for the terminal: placers beside each other, and what a plan does to its devices."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from envs.costs.costs import timing
from envs.gantt import Row
from envs.robustness import Robustness
from envs.timeline import Timeline
from evaluation.reporting import numbers as units
from evaluation.statistics import Estimate
from graphs.op_graph import Floats
from graphs.problem import STEP_TIME, Problem

if TYPE_CHECKING:
    from evaluation.comparison import Comparison

BAR = 10  # characters
ROBUST = {"median": "robust_seconds", "worst": "worst_seconds", "free": "free_seconds"}  # heads of records' fields
MANY = 14  # placers that a line of a table can hold


def comparison_tables(comparison: Comparison) -> RenderableType:
    """Step times per problem, if a line can hold them, and, of several problems, the summary; and what failed."""
    failed: list[RenderableType] = [failure_table(comparison)] if comparison.failures else []
    failed += [Text(sentence) for sentence in (*comparison.notes, *comparison.timing)]
    if len(comparison.problems) == 1:
        return Group(placer_table(comparison), *failed)
    if len(comparison.placers) > MANY:
        return Group(summary_table(comparison), *failed)
    return Group(problem_table(comparison), "", summary_table(comparison), *failed)


def failure_table(comparison: Comparison) -> Table:
    """Who gave no plan for what, and why."""
    table = _table("Failed")
    for head in ("placer", "problem", "reason"):
        table.add_column(head, overflow="fold")
    for failure in comparison.failures:
        table.add_row(escape(failure.placer), escape(failure.problem), escape(failure.reason), style="yellow")
    return table


def placer_table(comparison: Comparison) -> Table:
    """All there is to say about each placer on a single problem: a row per placer, the fastest first."""
    table = _table(comparison.problems[0])
    table.add_column("placer")
    own = () if comparison.objective == STEP_TIME else (comparison.objective,)
    robust = ROBUST if comparison.is_robust else {}
    for head in (*own, "step", *robust, "over best", "over bound", "fits", "fullest device", "simulations", "seconds"):
        table.add_column(head, justify="right")
    for row in comparison.summary():
        column = comparison.placers.index(row.placer)
        peak = max(max(record.peak_bytes) for record in comparison.records if record.placer == row.placer)
        table.add_row(
            comparison.labels[row.placer],
            *(units.seconds(comparison.objective_seconds[0, column]) for _ in own),
            units.seconds(comparison.step_seconds[0, column]),
            *(units.seconds(comparison.mean_seconds(field)[0, column]) for field in robust.values()),
            units.ratio(row.over_best.value),
            units.ratio(row.over_bound.value),
            "yes" if row.fits else Text("no", style="yellow"),
            units.memory(peak),
            f"{row.simulations:,.0f}",
            f"{row.search_seconds:.2f}",
            style="bold" if row.over_best.value == 1.0 else "",
        )
    return table


def problem_table(comparison: Comparison) -> Table:
    """Step time of each placer on each problem; the fastest that fits in bold, what does not fit in brackets."""
    what = _ranked_by(comparison)
    caption = (
        f"{what[0].upper()}{what[1:]}, less is better. Bold: fastest that fits. In brackets: does not fit in memory."
    )
    table = _table("Per problem", caption)
    table.add_column("problem", no_wrap=True)
    table.add_column("bound" if comparison.objective == STEP_TIME else "step bound", justify="right")
    for placer in comparison.placers:
        table.add_column(comparison.labels[placer].replace("_", "_\n"), justify="right", overflow="fold")
    for row, problem in enumerate(comparison.problems):
        cells = [_step(comparison, row, column) for column in range(len(comparison.placers))]
        table.add_row(Text(problem.replace("@", "\n@")), units.seconds(comparison.lower_bound_seconds[row]), *cells)
    return table


def summary_table(comparison: Comparison) -> Table:
    """Means over the problems, with their intervals."""
    caption = (
        f"Geometric means of {_ranked_by(comparison)} over that of the best placer and of step time over its lower "
        "bound, less is better, over the problems where the plan fits; in brackets 95% intervals, had other problems "
        "been drawn. Simulations and seconds are means per plan."
    )
    table = _table("Over all problems", caption)
    table.add_column("placer", overflow="fold")
    for head in ("over best", "over bound", "fits", "simulations", "seconds"):
        table.add_column(head, justify="right")
    for row in comparison.summary():
        table.add_row(
            comparison.labels[row.placer], interval(row.over_best), interval(row.over_bound),
            _fits(row.fits, row.problems), f"{row.simulations:,.0f}", f"{row.search_seconds:.2f}",
        )  # fmt: skip
    return table


def plan_table(timeline: Timeline, lower_bound_seconds: float) -> RenderableType:
    """What a plan asks of each device, and what the step takes."""
    problem = timeline.problem
    table = _table(problem.name)
    busy = busy_shares(timeline)
    table.add_column("device")
    table.add_column("memory", no_wrap=True)
    for head in ("used / limit", state(problem), "activations at peak", "busy"):
        table.add_column(head, justify="right")
    for index, device in enumerate(problem.cluster.devices):
        peak, static = timeline.peak_bytes[index], timeline.static_bytes[index]
        table.add_row(
            device.name,
            _bar(peak / max(device.memory_bytes, 1.0)),
            Text(f"{units.memory(peak)} / {units.memory(device.memory_bytes)}",
                 style="bold red" if peak > device.memory_bytes else ""),
            units.memory(static),
            units.memory(peak - static),
            units.share(busy[index]),
        )  # fmt: skip
    return Group(table, *map(Text, plan_sentences(timeline, lower_bound_seconds)))


def plan_sentences(timeline: Timeline, lower_bound_seconds: float) -> list[str]:
    """Step time, its ratio to the lower bound, the busiest link and, if it does not fit, where."""
    ratio = timeline.step_seconds / lower_bound_seconds if lower_bound_seconds > 0 else np.nan
    sentences = [
        f"One step takes {units.seconds(timeline.step_seconds)}, {units.ratio(ratio)} times the lower bound of "
        f"{units.seconds(lower_bound_seconds)}."
    ]
    links = link_shares(timeline)
    if links:
        busiest = max(links, key=lambda name: links[name])
        sentences.append(f"The busiest link, {busiest}, carries data {units.share(links[busiest])} of the time.")
    else:
        sentences.append("Nothing is sent between devices.")
    sentences.append(f"Cost model: {timing(timeline.problem)}.")
    if not timeline.fits:
        sentences.append(f"This plan does not fit: {timeline.overflow()}.")
    return sentences


def robustness_sentence(found: Robustness) -> str:
    """How a plan fares under noise, and without contention."""
    median, worst = found.median_seconds / found.step_seconds, found.worst_seconds / found.step_seconds
    return (
        f"With {found.noise:.0%} of noise on every op and transfer it takes {units.seconds(found.median_seconds)} in "
        f"the median of {found.draws} draws ({units.ratio(median)} times) and {units.seconds(found.worst_seconds)} at "
        f"worst ({units.ratio(worst)} times); if transfers did not queue, {units.seconds(found.free_seconds)}."
    )


def state(problem: Problem) -> str:
    """What a device holds for the whole step."""
    return "parameters, gradients, optimizer" if problem.graph.is_training else "parameters"


def busy_shares(timeline: Timeline) -> Floats:
    """(devices,) the share of the step that each device spends on ops."""
    return timeline.busy_seconds / (timeline.step_seconds or 1.0)


def link_shares(timeline: Timeline) -> dict[str, float]:
    """Of each channel that was used, the share of the step during which it carried something."""
    shares: dict[str, float] = {}
    for row in timeline.rows():
        if row.link:  # channels of the same name: the busier
            shares[row.label] = max(shares.get(row.label, 0.0), _carrying(row) / (timeline.step_seconds or 1.0))
    return shares


def interval(estimate: Estimate) -> str:
    """As "1.25 [1.10, 1.43]"; without the interval where one value leaves none."""
    if estimate.count < 2:
        return units.ratio(estimate.value)
    return f"{units.ratio(estimate.value)} [{units.ratio(estimate.low)}, {units.ratio(estimate.high)}]"


def to_text(renderable: RenderableType, width: int = 120) -> str:
    """Plain text without colours, for a file or a test."""
    console = Console(file=io.StringIO(), width=width, no_color=True, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable, markup=False, highlight=False)
    return capture.get()


def _ranked_by(comparison: Comparison) -> str:
    if comparison.is_robust:
        return "median step time under noise"
    return "step time" if comparison.objective == STEP_TIME else comparison.objective


def _table(title: str, caption: str | None = None) -> Table:
    table = Table(title=escape(title), title_style="bold", caption=caption, box=SIMPLE_HEAD)
    table.title_justify = table.caption_justify = "left"
    return table


def _step(comparison: Comparison, row: int, column: int) -> Text:
    text = units.seconds(comparison.objective_seconds[row, column])
    if np.isnan(comparison.objective_seconds[row, column]):
        return Text(text)
    if not comparison.fits[row, column]:
        return Text(f"({text})", style="dim")
    return Text(text, style="bold green" if comparison.over_best[row, column] == 1.0 else "")


def _fits(fits: int, problems: int) -> Text:
    return Text(f"{fits}/{problems}", style="" if fits == problems else "yellow")


def _bar(filled: float) -> Text:
    cells = min(BAR, round(filled * BAR))
    colour = "red" if filled > 1 else "yellow" if filled > 0.9 else "green"
    return Text.assemble(("█" * cells, colour), ("░" * (BAR - cells), "dim"), f" {units.share(filled):>4}")


def _carrying(row: Row) -> float:
    """Seconds for which a link carried something: transfers at once, by multicast or over a free link, count once."""
    start, finish = np.unique(np.stack([row.start, row.finish]), axis=1)
    until = np.concatenate([[0.0], np.maximum.accumulate(finish)[:-1]])
    return float(np.maximum(finish - np.maximum(start, until), 0.0).sum())
