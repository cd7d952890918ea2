"""The leaderboard: a page and a plot made of submissions, each of which is verified first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from evaluation.benchmark.best_known import best_known
from evaluation.benchmark.problem_file import Benchmark
from evaluation.benchmark.row_table import cells
from evaluation.benchmark.submission import SUBMISSION, SubmissionFolder
from evaluation.benchmark.verification import Row, row_of, verify
from evaluation.drawing.figures import BLUE, GREY, ORANGE, drawn
from evaluation.statistics import geometric_mean
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole

SUBMISSIONS = Path(__file__).resolve().parents[2] / "benchmark" / "submissions"
HEIGHT = 4.5  # inches
LEAST = 0.5  # where rows without simulations are drawn
HEAD = """\
# Leaderboard

What placers find on the frozen problems of `{name}`. Each row is a folder of plans in `benchmark/submissions/`; all
were timed again when this page was made, by `python -m evaluation.benchmark leaderboard`. How to add one is
[here](how-to/submit.md).

Over best known: the geometric mean of step times over those of the fastest known plans, less is better, where a plan
fits; in brackets the 95% interval, had other problems been drawn. Simulations and seconds are means per problem, as
the authors say; seconds are of machines that differ. A policy answers zero-shot, or learns per graph.
"""
NOTE = """
## Best known plans

Of {known} problems the repository has the fastest plan that is known, with its time, a lower bound, who found it and
with how many simulations: `placelab verify` times all of them again. They take {over_bound} times their lower bounds
(geometric mean).
"""


def load_submissions(folder: Path = SUBMISSIONS) -> list[SubmissionFolder]:
    """Those in a folder. Raises InputError if there is none, and as `SubmissionFolder.load`."""
    found = [SubmissionFolder.load(each.parent) for each in sorted(folder.glob(f"*/{SUBMISSION}"))]
    if not found:
        raise InputError(f"{folder} holds no submissions; `placelab bench PLACER --out FOLDER` writes one")
    return found


def write_leaderboard(benchmark: Benchmark, submissions: Sequence[SubmissionFolder], page: Path, plot: Path) -> None:
    """Verify submissions, and write the page and its plot. Raises InputError as `verify` does."""
    verify(submissions, benchmark)
    best = best_known(benchmark)
    rows = sorted((row_of(each, best) for each in submissions), key=_rank)
    write_whole(page, page_text(benchmark, rows, plot.name))
    write_whole(plot, drawn(partial(_paint, rows), HEIGHT, "svg", facecolor="white", metadata={"Date": None}))


def page_text(benchmark: Benchmark, rows: Sequence[Row], plot: str) -> str:
    """The page, in Markdown: a table for each set of suites."""
    parts = [HEAD.format(name=benchmark.index.name)]
    for suites, some in groupby(rows, key=lambda row: row.suites):
        names = ", ".join(f"`{name}`" for name in suites.split(","))
        parts.append(f"\n## {names}\n\n")
        parts.append(
            "| placer | over best known | fits | simulations | seconds | learns |\n|---|---|---|---|---|---|\n"
        )
        parts += [f"| {row.title} | {' | '.join(cells(row))} | {row.learns} |\n" for row in some]
    parts.append(f"\n![Quality over simulations]({plot})\n")
    best = best_known(benchmark)
    ratios = [entry.record.step_seconds / entry.record.lower_bound_seconds for entry in best.values()]
    over_bound = f"{float(geometric_mean(np.array(ratios))):.2f}" if ratios else "an unknown number of"
    known = f"{len(best)} of the {len(benchmark.index.problems)}"
    parts.append(NOTE.format(known=known, over_bound=over_bound))
    return "".join(parts)


def _rank(row: Row) -> tuple[str, float, float]:
    """By suites; in each, first those that fit most often, among these the fastest."""
    return row.suites, -row.share_that_fits, row.over_best.value


def _paint(rows: Sequence[Row], figure: Figure) -> None:
    """Quality over simulations: a mark for each row, with its interval; no simulation is drawn as a half."""
    suites = list(dict.fromkeys(row.suites for row in rows))
    axes = figure.subplots(1, len(suites), squeeze=False)[0]
    for axis, name in zip(axes, suites, strict=True):
        axis.set_title(name.replace(",", ", "))
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("simulations per problem")
        axis.grid()
        for row in (row for row in rows if row.suites == name and row.over_best.count):
            at = max(row.simulations, LEAST)
            axis.plot([at, at], [row.over_best.low, row.over_best.high], color=GREY, linewidth=1)
            axis.plot(at, row.over_best.value, "o", color=BLUE if row.learns == "no" else ORANGE)
            axis.annotate(row.title, (at, row.over_best.value), (4, 2), textcoords="offset points", fontsize=6)
    axes[0].set_ylabel("step time over best known")
