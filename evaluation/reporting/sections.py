"""Sections and sheets: what a page of results is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from envs.timeline import Timeline
from evaluation import formatting
from evaluation.comparison import Comparison
from evaluation.reporting.plan_table import busy_shares, state


@dataclass(frozen=True)
class Sheet:
    """A table of the page."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    strong: int = -1  # row to stress
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page: sentences, a table, figures; what is folded opens on demand."""

    title: str
    sentences: tuple[str, ...]
    figures: tuple[tuple[Markup, str], ...] = ()  # SVG, caption
    sheet: Sheet | None = None
    folded: tuple[tuple[str, Sheet], ...] = ()  # summary, table
    code: tuple[tuple[str, str], ...] = ()  # summary, text


def summary_sheet(comparison: Comparison, learned: str) -> Sheet:
    """A row per placer over all problems."""
    rows = comparison.summary()
    return Sheet(
        ("placer", "over best", "over bound", "fits", "simulations", "search"),
        tuple(
            (
                comparison.labels[row.placer],
                formatting.interval(row.over_best),
                formatting.interval(row.over_bound),
                f"{row.fits}/{row.problems}",
                f"{row.simulations:,.0f}",
                formatting.seconds(row.search_seconds),
            )
            for row in rows
        ),
        _strong([row.placer for row in rows], learned),
        "Geometric means of the step time over that of the best placer of each problem, and over the lower bound, "
        "where the plan fits; less is better. In brackets: 95% intervals, had other problems been drawn. Simulations "
        "and search time are means per plan.",
    )


def single_sheet(comparison: Comparison, learned: str) -> Sheet:
    """A row per placer on one problem."""
    rows = comparison.summary()
    step_seconds = dict(zip(comparison.placers, comparison.step_seconds[0], strict=True))
    return Sheet(
        ("placer", "step", "over best", "over bound", "fits", "simulations", "search"),
        tuple(
            (
                comparison.labels[row.placer],
                formatting.seconds(step_seconds[row.placer]),
                formatting.ratio(row.over_best.value),
                formatting.ratio(row.over_bound.value),
                "yes" if row.fits else "no",
                f"{row.simulations:,.0f}",
                formatting.seconds(row.search_seconds),
            )
            for row in rows
        ),
        _strong([row.placer for row in rows], learned),
    )


def problem_sheet(comparison: Comparison) -> Sheet:
    """Step times: a row per problem, a column per placer."""
    rows = [
        (
            problem,
            formatting.seconds(comparison.lower_bound_seconds[row]),
            *(_step(comparison, row, column) for column in range(len(comparison.placers))),
        )
        for row, problem in enumerate(comparison.problems)
    ]
    heads = ("problem", "lower bound", *(comparison.labels[placer] for placer in comparison.placers))
    return Sheet(heads, tuple(rows), note="* the fastest that fits; in brackets: does not fit in memory.")


def device_sheet(timeline: Timeline) -> Sheet:
    """Memory and load of each device."""
    problem = timeline.problem
    rows = [
        (
            device.name,
            f"{formatting.memory(peak)} / {formatting.memory(device.memory_bytes)}",
            formatting.memory(static),
            formatting.memory(peak - static),
            formatting.share(busy),
        )
        for device, peak, static, busy in zip(
            problem.cluster.devices, timeline.peak_bytes, timeline.static_bytes, busy_shares(timeline), strict=True
        )
    ]
    return Sheet(("device", "memory used / limit", state(problem), "activations at peak", "busy"), tuple(rows))


def _step(comparison: Comparison, row: int, column: int) -> str:
    text = formatting.seconds(comparison.step_seconds[row, column])
    if np.isnan(comparison.step_seconds[row, column]):
        return text
    if not comparison.fits[row, column]:
        return f"({text})"
    return f"{text} *" if comparison.over_best[row, column] == 1.0 else text


def _strong(placers: list[str], learned: str) -> int:
    return placers.index(learned) if learned in placers else -1
