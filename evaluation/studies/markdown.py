"""Markdown of the studies' documents: rows of tables, and estimates with their intervals."""

from __future__ import annotations

from collections.abc import Sequence

from evaluation.statistics import Estimate


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> list[str]:
    """Lines of a table, of whose columns the first `words` hold words, and the others numbers."""
    rule = ["---"] * words + ["---:"] * (len(heads) - words)
    return [row(heads), row(rule), *(row(cells) for cells in rows)]


def row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def estimated(given: Estimate, *, digits: int = 3) -> str:
    """A value with its interval, if that is one, in brackets; so many digits after the point."""
    if given.count == 0:
        return "-"
    value, low, high = (f"{each:.{digits}f}" for each in (given.value, given.low, given.high))
    return value + (f" [{low}, {high}]" if given.low < given.high else "")
