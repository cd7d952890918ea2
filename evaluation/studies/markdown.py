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


def estimated(given: Estimate) -> str:
    """A value with its interval, if that is one, in brackets."""
    if given.count == 0:
        return "-"
    return f"{given.value:.3f}" + (f" [{given.low:.3f}, {given.high:.3f}]" if given.low < given.high else "")
