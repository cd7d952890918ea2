"""Sections, tiles and sheets: what a page of results is made of."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from envs.timelines.timeline import Timeline
from evaluation.comparing.comparison import Comparison, step_texts
from evaluation.drawing.cell_charts import bar, breakable, coded, key, strip, strip_axis
from evaluation.drawing.figures import page
from evaluation.records import formatting
from evaluation.tables.plan_table import device_rows, state
from evaluation.tables.step_summary import SAME, StepSummary, TimeSpent
from evaluation.tables.summary_rows import Rows, held_rows, sent_rows, time_rows
from graphs.foundation.files import write_whole

TEMPLATE = Path(__file__).resolve().parent / "templates" / "report.html.j2"

SUMMARY = (
    "Geometric means of the step time over that of the best placer of each problem, and over the lower bound, "
    "where the plan fits; less is better. In brackets, of five problems or more: 95% intervals, had others been drawn. "
    "Each dot is a problem, by its ratio to the best. Under program: how many times as long the same placements take "
    "in PyTorch's own order. Simulations and search time are means per plan."
)
SPENT = (
    "Transfers: the device waits for data that is on its way, or handles messages; all-reduce: that data are sums of "
    "gradients. Host: an op has all that it reads, and was not issued yet. Bubble: nothing that it needs is on its "
    "way; another device still computes that, or the step ends elsewhere."
)


@dataclass(frozen=True)
class Tile:
    """A number to see first."""

    value: str
    what: str
    detail: str = ""
    is_bad: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table of the page. A cell is text, or a small chart (`cell_charts`)."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    strong: tuple[int, ...] = ()  # rows to stress
    note: str = ""
    title: str = ""
    words: int = 1  # columns of words, at the left; the others are of numbers
    is_wide: bool = False  # none next to it


@dataclass(frozen=True)
class Section:
    """A part of the page: what is asked first, sentences, tables, figures; what is folded opens on demand."""

    title: str
    sentences: tuple[str, ...] = ()
    tiles: tuple[Tile, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    notes: tuple[str, ...] = ()  # on the tables
    figures: tuple[tuple[Markup, str], ...] = ()  # chart, caption
    folded: tuple[tuple[str, Sheet], ...] = ()  # summary, table
    code: tuple[tuple[str, str], ...] = ()  # summary, text
    commands: tuple[str, ...] = ()


def placer_sheet(comparison: Comparison, learned: Sequence[str], *, single: bool = False) -> Sheet:
    """A row per placer over all problems; of a single problem, with the step time."""
    rows = comparison.summary()
    columns = [comparison.placers.index(row.placer) for row in rows]
    cells = tuple(
        (
            comparison.labels[row.placer],
            *([formatting.seconds(comparison.step_seconds[0, column])] if single else [_strip(comparison, column)]),
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
    heads = ("placer", "step" if single else strip_axis(), "over best", "over bound", "program", "fits",
             "simulations", "CPU seconds")  # fmt: skip
    strong = tuple(number for number, row in enumerate(rows) if row.placer in learned)
    return Sheet(heads, cells, strong, "" if single else SUMMARY, is_wide=True)


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
    """Memory of each device."""
    heads = ("device", "memory used / limit", state(timeline.problem), "activations at peak")
    return Sheet(heads, tuple(device_rows(timeline)), title="Memory")


def step_tiles(summary: StepSummary) -> tuple[Tile, ...]:
    """How long a step takes, next to its lower bound and to one device alone, and whether it fits."""
    over = formatting.ratio(summary.step_seconds / summary.bound_seconds) if summary.bound_seconds > 0 else ""
    step = Tile(
        formatting.seconds(summary.step_seconds),
        "one step",
        f"{over} times the lower bound for {summary.kind}" if over else "",
    )
    alone = Tile(formatting.NOTHING, "no device holds everything alone")
    if summary.alone is not None:
        taken = f"{summary.alone.device}, {formatting.seconds(summary.alone.seconds)}"
        alone = faster_tile(summary.speedup, "as fast as the fastest device alone", taken)
    of = f" of {formatting.memory(summary.fullest_limit)}" if math.isfinite(summary.fullest_limit) else ""
    held = f"fullest: {summary.fullest}, {formatting.memory(summary.fullest_bytes)}{of}"
    fits = Tile("fits" if summary.fits else "does not fit", "in the devices' memory", held, not summary.fits)
    return (step, alone, fits)


def faster_tile(times: float, what: str, detail: str) -> Tile:
    """How many times as fast as something; marked if it is slower."""
    return Tile(f"{formatting.ratio(times)} times", what, detail, is_bad=bool(times < 1 - SAME))


def step_summary_html(timeline: Timeline) -> Markup:
    """What is asked first of a step, for the top of its page. Raises InputError as `costs_of` does."""
    summary = StepSummary.of(timeline)
    return sheets_html(*step_sheets(summary), tiles=step_tiles(summary))


def sheets_html(*sheets: Sheet, tiles: Sequence[Tile] = ()) -> Markup:
    """Tables, below tiles, for a page that is made of charts."""
    shown = {"summary_tiles": tiles, "summary_sheets": sheets}
    return Markup(page(TEMPLATE.with_name("step_summary.html.j2"), breakable=breakable, **shown))


def step_sheets(summary: StepSummary) -> tuple[Sheet, ...]:
    """Where the time of a step goes, and what is largest of what is sent and held."""
    largest = (_largest(sent_rows(summary), 3), _largest(held_rows(summary), 2))
    return (time_sheet(summary.time, "Where the time goes", SPENT), *(sheet for sheet in largest if sheet.rows))


def time_sheet(time: TimeSpent, title: str, note: str = "") -> Sheet:
    """A bar per device, as long as the step, of what it spends the step on, with the shares."""
    (device, *_, sends), rows = time_rows(time)
    bars = [bar(zip(time.names, shares, strict=True)) for shares in time.shares.tolist()]
    drawn = tuple((row[0], drawn, *row[1:]) for row, drawn in zip(rows, bars, strict=True))
    return Sheet((device, "", *map(key, time.names), sends), drawn, note=note, title=title)


def _largest(rows: Rows, words: int) -> Sheet:
    heads, cells = rows
    title = heads[0][0].upper() + heads[0][1:]
    return Sheet(("", *heads[1:]), tuple(cells), title=title, words=words)


def _strip(comparison: Comparison, column: int) -> Markup:
    return strip(zip(comparison.problems, comparison.over_best[:, column].tolist(), strict=True))


def results_page(path: Path, name: str, kicker: str, sections: Sequence[Section], **header: object) -> Path:
    """Write a page of sections below its name; the header may hold `facts`, pairs of text, and a `command`."""
    content = {"facts": (), "command": "", "breakable": breakable, "coded": coded, **header}
    write_whole(path, page(TEMPLATE, name=name, kicker=kicker, sections=sections, **content))
    return path
