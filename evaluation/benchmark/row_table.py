"""Rows of the leaderboard as a table of the terminal, in Markdown, and as JSON."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Column
from rich.text import Text

from evaluation.benchmark.verification import VerifiedRow
from evaluation.records import formatting
from evaluation.records.printed import Shown


@dataclass(frozen=True)
class Rows(Shown):
    """Rows of submissions that were verified, and what is said below them."""

    rows: Sequence[VerifiedRow]
    said: str

    def to_json(self) -> dict[str, Any]:
        """As plain data, without the ratios of single problems."""
        return {"rows": [asdict(row) | {"ratios": len(row.ratios)} for row in self.rows], "said": self.said}

    def _shown(self) -> RenderableType:
        if not self.rows:
            return Text(self.said)
        heads = formatting.numbers("over best known", "fits", "simulations", "CPU seconds")
        columns: list[Column | str] = [Column("placer", overflow="fold"), "suites", *heads, "learns"]
        table = formatting.table("Verified", *columns)
        for row in self.rows:
            table.add_row(row.title, row.suites, *cells(row), row.learns)
        return Group(table, Text(self.said))


def in_cell(text: str) -> str:
    """A title in a cell of a table in Markdown, whatever its author wrote."""
    return re.sub(r"([\\|`*_<\[\]])", r"\\\1", " ".join(text.split()))


def cells(row: VerifiedRow) -> tuple[str, str, str, str]:
    """Its figures: over the best known, fits, simulations, seconds of the processor."""
    return (
        formatting.interval(row.over_best), f"{row.fits}/{row.problems}", f"{row.simulations:,.0f}",
        f"{row.search_seconds:.2f}",
    )  # fmt: skip
