"""Sections and sheets: what a page of results is made of."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from envs.timeline import Timeline
from evaluation import formatting
from evaluation.comparison import Comparison, step_texts
from evaluation.reporting.plan_table import device_rows, state

SUMMARY = (
    "Geometric means of the step time over that of the best placer of each problem, and over the lower bound, "
    "where the plan fits; less is better. In brackets: 95% intervals, had other problems been drawn. Under program: "
    "how many times as long the same placements take in PyTorch's own order. Simulations and search time are means per "
    "plan."
)


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


def placer_sheet(comparison: Comparison, learned: str, *, single: bool = False) -> Sheet:
    """A row per placer over all problems; of a single problem, with the step time."""
    rows = comparison.summary()
    columns = [comparison.placers.index(row.placer) for row in rows]
    cells = tuple(
        (
            comparison.labels[row.placer],
            *([formatting.seconds(comparison.step_seconds[0, column])] if single else []),
            formatting.interval(row.over_best),
            formatting.interval(row.over_bound),
            formatting.seconds(comparison.program_seconds[0, column])
            if single
            else formatting.ratio(row.program.value),
            ("yes" if row.fits else "no") if single else f"{row.fits}/{row.problems}",
            f"{row.simulations:,.0f}",
            formatting.seconds(row.search_seconds),
        )
        for row, column in zip(rows, columns, strict=True)
    )
    heads = ("placer", *(["step"] if single else []), "over best", "over bound", "program", "fits",
             "simulations", "search")  # fmt: skip
    placers = [row.placer for row in rows]
    return Sheet(heads, cells, placers.index(learned) if learned in placers else -1, "" if single else SUMMARY)


def problem_sheet(comparison: Comparison) -> Sheet:
    """Step times: a row per problem, a column per placer."""
    rows = []
    for row, problem in enumerate(comparison.problems):
        cells = zip(step_texts(comparison, comparison.step_seconds, row), comparison.over_best[row], strict=True)
        starred = (f"{text} *" if best == 1.0 else text for text, best in cells)
        rows.append((problem, formatting.seconds(comparison.lower_bound_seconds[row]), *starred))
    heads = ("problem", "lower bound", *(comparison.labels[placer] for placer in comparison.placers))
    return Sheet(heads, tuple(rows), note="* the fastest that fits; in brackets: does not fit in memory.")


def device_sheet(timeline: Timeline) -> Sheet:
    """Memory and load of each device."""
    heads = ("device", "memory used / limit", state(timeline.problem), "activations at peak", "busy")
    return Sheet(heads, tuple(device_rows(timeline)))
