"""The leaderboard: a page and a plot made of submissions, each of which is verified first."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from evaluation.benchmark.best_known import best_known
from evaluation.benchmark.both_worlds import both_worlds_text
from evaluation.benchmark.problem_file import FOLDER, Benchmark
from evaluation.benchmark.quality_plot import height_of, paint
from evaluation.benchmark.row_table import cells, in_cell
from evaluation.benchmark.stream_results import IN_BENCHMARK, StreamResults
from evaluation.benchmark.submission import SUBMISSION, SubmissionFolder
from evaluation.benchmark.suites import BENCHMARKS
from evaluation.benchmark.verification import VerifiedRow, row_of, verify
from evaluation.drawing.figures import drawn
from evaluation.records.statistics import geometric_mean
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole

SUBMISSIONS = Path(__file__).resolve().parents[2] / "benchmark" / "submissions"
HEAD = """\
# {title}

What placers find on the frozen problems of `{name}`. Each row is a folder of plans in `benchmark/submissions/`; all
were timed again when this page was made, by `python -m evaluation.benchmark leaderboard{flags}`. How to add one is
[here](how-to/submit.md).

Over best known: the geometric mean of step times over those of the fastest known plans, less is better, where a plan
fits; in brackets, of five problems or more, the 95% interval, had others been drawn. Simulations and seconds are means
per problem, as the authors say; seconds are of machines that differ and were shared, and tell no more than an order of
magnitude. A policy that takes part, alone or in a search, answers zero-shot, or learns per graph.
"""
NOTE = """
## Best known plans

Of {known} problems the repository has the fastest plan that is known, with its time, a lower bound, who found it and
with how many simulations: `placelab verify` times all of them again, and `python -m evaluation.benchmark write-best
FOLDER` writes them as plan files, with a table. Over bound: the geometric mean of step times over lower bounds, which
hold for all op placements, or for all plans with the same copies; the optimum may lie anywhere between.

| suite | known | over bound | found by |
|---|---|---|---|
"""


def load_submissions(benchmark: str, folder: Path = SUBMISSIONS) -> list[SubmissionFolder]:
    """Those to a benchmark that are in a folder. Raises InputError if there is none, and as `SubmissionFolder.load`."""
    given = [SubmissionFolder.load(each.parent) for each in sorted(folder.glob(f"*/{SUBMISSION}"))]
    found = [each for each in given if each.about.benchmark == benchmark]
    if not found:
        raise InputError(
            f"{folder} holds no submissions to {benchmark}; `placelab bench PLACER --out FOLDER` writes one"
        )
    return found


def write_leaderboard(benchmark: Benchmark, submissions: Sequence[SubmissionFolder], page: Path, plot: Path) -> None:
    """Verify submissions, and write the page and its plot. Raises InputError as `verify` does."""
    verify(submissions, benchmark)
    best = best_known(benchmark)
    found = sections(benchmark, [row_of(each, best) for each in with_parts(benchmark, submissions)])
    write_whole(page, page_text(benchmark, found, plot.name))
    drawing = drawn(partial(paint, found), height_of(len(found)), "svg", facecolor="white", metadata={"Date": None})
    write_whole(plot, drawing)


def with_parts(benchmark: Benchmark, submissions: Sequence[SubmissionFolder]) -> Iterator[SubmissionFolder]:
    """All submissions, and what they are on suites that others are on alone, so that each table has all rivals."""
    sets = {frozenset(_names(benchmark, each.about.suites)): each.about.suites for each in submissions}
    for submitted in submissions:
        yield submitted
        own = frozenset(_names(benchmark, submitted.about.suites))
        yield from (submitted.on(benchmark, suites) for some, suites in sets.items() if some < own)


def sections(benchmark: Benchmark, rows: Iterable[VerifiedRow]) -> dict[str, list[VerifiedRow]]:
    """Rows by their suites, in the benchmark's order: first those that fit most often, among these the fastest."""
    order, found = (
        {name: number for number, name in enumerate(benchmark.suites)},
        defaultdict[str, list[VerifiedRow]](list),
    )
    for row in sorted(rows, key=lambda row: (-row.share_that_fits, row.over_best.value, row.title)):
        found[",".join(sorted(_names(benchmark, row.suites), key=order.__getitem__))].append(row)
    return {suites: found[suites] for suites in sorted(found, key=lambda suites: order[suites.split(",")[0]])}


def page_text(benchmark: Benchmark, found: Mapping[str, Sequence[VerifiedRow]], plot: str) -> str:
    """The page, in Markdown: a table for each set of suites."""
    name = benchmark.index.name
    is_first = benchmark.folder == FOLDER
    flags = "" if is_first else f" --problems benchmark/{name} --out docs/{plot.removesuffix('.svg')}.md"
    parts = [HEAD.format(name=name, title="Leaderboard" if is_first else f"Leaderboard of {name}", flags=flags)]
    described = BENCHMARKS.get(name, {})
    for suites, rows in found.items():
        names = suites.split(",")
        about = "; ".join(f"`{name}`: {_said(described[name].about)}" for name in names if name in described)
        parts.append(f"\n## {', '.join(f'`{name}`' for name in names)}\n\n")
        parts.append(f"{len(benchmark.chosen(suites))} problems.{f' {about}.' if about else ''}\n\n")
        parts.append(
            "| placer | over best known | fits | simulations | seconds | learns |\n|---|---|---|---|---|---|\n"
        )
        parts += [f"| {in_cell(row.title)} | {' | '.join(cells(row))} | {row.learns} |\n" for row in rows]
    parts.append(f"\n![Quality over simulations]({plot})\n")
    if not is_first and name in BENCHMARKS:
        first = Benchmark.load()
        rows = [row_of(each, best_known(first)) for each in load_submissions(first.index.name)]
        parts.append(both_worlds_text(found, sections(first, rows), first.index.name))
    if (streams := benchmark.folder / IN_BENCHMARK).exists():
        parts.append(f"\n## Streams\n\n{StreamResults.load(streams).text()}")
    return "".join([*parts, _best_known_text(benchmark)])


def _said(about: str) -> str:
    """A sentence as a part of one."""
    return about[0].lower() + about[1:].rstrip(".")


def _best_known_text(benchmark: Benchmark) -> str:
    """How many best known plans there are, and how far they are from their lower bounds."""
    best = best_known(benchmark)
    every = len(benchmark.index.problems)
    text = NOTE.format(known=f"all {every}" if len(best) == every else f"{len(best)} of the {every}")
    for suite in benchmark.suites:
        names = [each.name for each in benchmark.chosen(suite)]
        known = [best[name].record for name in names if name in best]
        ratios = np.array([record.step_seconds / record.lower_bound_seconds for record in known])
        over = f"{float(geometric_mean(ratios)):.2f}" if known else ""
        finders = Counter(record.placer.partition(":")[0] for record in known).most_common()
        found_by = ", ".join(f"`{placer}` {count}" for placer, count in finders)
        text += f"| `{suite}` | {len(known)}/{len(names)} | {over} | {found_by} |\n"
    return text


def _names(benchmark: Benchmark, suites: str) -> list[str]:
    return list(benchmark.suites) if suites == "all" else suites.split(",")
