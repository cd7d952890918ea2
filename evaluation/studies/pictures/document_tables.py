"""Tables of documents: what a study has written down, read again."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from graphs.foundation.errors import InputError

ROOT = Path(__file__).resolve().parents[3]
MARKS = str.maketrans("", "", "`*")


@dataclass(frozen=True)
class Measured:
    """A number, and its interval if the table has one; NaN where the table has no number."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, cell: str) -> Measured:
        """The first number of a cell, and the two in brackets behind it: "0.91 [0.88, 0.95] 75/112"."""
        numbers = [float(text.replace(",", "")) for text in re.findall(r"-?\d[\d,]*(?:\.\d+)?", cell)]
        if not numbers or not re.match(r"-?\d", cell):
            return cls(math.nan, math.nan, math.nan)
        has_interval = re.match(r"-?[\d.,]+(?:, -?[\d.]+)? \[[^]]*,[^]]*\]", cell) is not None
        low, high = numbers[-2:] if has_interval and "/" not in cell else (numbers[0], numbers[0])
        return cls(numbers[0], low, high)


def rows_of(document: str, heads: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of the first table that has these columns: cells by column, without marks.

    `document` is a path in the repository. Raises InputError if no table has the columns.
    """
    columns: list[str] = []
    rows: list[dict[str, str]] = []
    for line in (ROOT / document).read_text().splitlines():
        cells = [cell.strip().translate(MARKS) for cell in line.strip("| ").split(" | ")] if line[:1] == "|" else []
        if columns and not cells:
            return rows
        if columns and not set(line) <= set("|-: "):
            rows.append(dict(zip(columns, cells, strict=True)))
        elif not columns and set(heads) <= set(cells):
            columns = cells
    if rows:  # the document ends with its table
        return rows
    raise InputError(f"{document} has no table with the columns {', '.join(heads)}")
