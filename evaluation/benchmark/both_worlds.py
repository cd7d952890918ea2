"""Both worlds: what learns, and its rivals, on the ideal machine and where programs run plans."""

from collections.abc import Mapping, Sequence

from evaluation.benchmark.row_table import cells, in_cell
from evaluation.benchmark.verification import VerifiedRow

HEAD = """
## Both worlds

Rows of one title on {there} of `{first}`, whose plans are run on the ideal machine, and on {here} here, whose plans are
run as programs run them. Best known plans of both are those of long searches.

| placer | learns | ideal machine: over best known | fits | seconds | programs: over best known | fits | seconds |
|---|---|---|---|---|---|---|---|
"""
Sections = Mapping[str, Sequence[VerifiedRow]]


def both_worlds_text(here: Sections, there: Sections, first: str) -> str:
    """A table in Markdown of the rows that both benchmarks have, in sections where a row learns on each graph.

    `first` is the name of the benchmark of the ideal machine. "" if either has no such section.
    """
    found = [_learners(each) for each in (here, there)]
    if not all(found):
        return ""
    (suites, rows), (others, other_rows) = (each[0] for each in found)
    by_title = {row.title: row for row in other_rows}
    return HEAD.format(there=_quoted(others), here=_quoted(suites), first=first) + "".join(
        f"| {in_cell(row.title)} | {row.learns} | {_figures(by_title[row.title])} | {_figures(row)} |\n"
        for row in rows if row.title in by_title
    )  # fmt: skip


def _learners(found: Sections) -> list[tuple[str, Sequence[VerifiedRow]]]:
    return [(suites, rows) for suites, rows in found.items() if any(row.learns == "per graph" for row in rows)]


def _figures(row: VerifiedRow) -> str:
    over_best, fits, _, seconds = cells(row)
    return f"{over_best} | {fits} | {seconds}"


def _quoted(suites: str) -> str:
    return ", ".join(f"`{suite}`" for suite in suites.split(","))
