"""Gantt charts, as text and as pixels: what ran where, and when."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.op_graph import Floats, Ints

IDLE = -1
IDLE_MARK = "."
FEW = 0.2  # of the labels of a chart: they may be left out
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, eq=False)
class GanttRow:
    """What one device or link did."""

    label: str
    op: Ints  # (entries,) what ran, or whose output was sent: an op or, in a chart of passes, a span
    start: Floats  # (entries,) seconds; ascending for a link
    finish: Floats  # (entries,) seconds
    link: bool = False

    @property
    def busy_seconds(self) -> float:
        """Seconds for which it did something: transfers at once, by multicast or over a free link, count once."""
        start, finish = np.unique(np.stack([self.start, self.finish]), axis=1)
        until = np.concatenate([[0.0], np.maximum.accumulate(finish)[:-1]])
        return float(np.maximum(finish - np.maximum(start, until), 0.0).sum())


class Mark(NamedTuple):
    """How an op or a pass is drawn: by its label if those of the chart fit, else by its letter in each cell."""

    letter: str
    label: str = ""


def cells(row: GanttRow, seconds: float, columns: int) -> Ints:
    """(columns,) the op that took most of each of the equal slices of a step; IDLE where more than half was idle."""
    if seconds <= 0:
        return np.full(columns, IDLE)
    scale = columns / seconds
    busy, most = np.zeros(columns), np.zeros(columns)
    owner = np.full(columns, IDLE)
    until = 0.0
    for op, begin, finish in zip(row.op.tolist(), row.start * scale, row.finish * scale, strict=True):
        start = max(begin, until) if row.link else begin  # a free link, and multicast, have several at once
        if finish <= start:
            continue
        until = finish
        first, last = int(start), min(int(np.ceil(finish)), columns)
        edges = np.arange(first, last)
        mine = np.minimum(finish, edges + 1) - np.maximum(start, edges)
        busy[first:last] += mine
        wins = mine > most[first:last]
        most[first:last][wins] = mine[wins]
        owner[first:last][wins] = op
    return np.where(busy > 0.5 - 1e-9, owner, IDLE)


class Segment(NamedTuple):
    """Neighbouring cells of one owner, as text: a label, if it fits, then dashes, and a space if there is room."""

    owner: int
    label: str
    fill: str
    space: str


def segments(owners: Iterable[int], marks: Sequence[Mark], *, labels: bool = True) -> Iterator[Segment]:
    """A row of cells, (columns,), as text of that length: "F0--- F1---". `marks` are those of the owners, (ops,)."""
    for owner, run in groupby(owners):
        length = len(list(run))
        letter, label = (IDLE_MARK, "") if owner == IDLE else marks[owner]
        if labels and 0 < len(label) <= length:
            fill = length - len(label)
            yield Segment(owner, label, "-" * (fill - 1), " " * (fill > 0))
        else:
            yield Segment(owner, "", letter * length, "")


@dataclass(frozen=True, eq=False)
class Chart:
    """Rows, how what ran in them is drawn, and what that means."""

    rows: list[GanttRow]
    marks: list[list[Mark]]  # of each row those of its ops, by `GanttRow.op`
    legend: list[str]

    @classmethod
    def of_ops(cls, rows: list[GanttRow], names: Sequence[str]) -> Chart:
        """A letter for each op, and for its transfers. With more ops than letters, # for ops and = for transfers."""
        if len(names) > len(LETTERS):
            ops, transfers = ([Mark(letter)] * len(names) for letter in "#=")
            return cls(rows, [transfers if row.link else ops for row in rows], [])
        letters = LETTERS[: len(names)]
        legend = [f"{letter} {name}" for letter, name in zip(letters, names, strict=True)]
        return cls(rows, [[Mark(letter) for letter in letters]] * len(rows), legend)

    def segments(self, row: int, seconds: float, columns: int) -> Iterator[Segment]:
        """What each of the equal slices of a step, (columns,), shows in a row: labels if most of the chart's fit."""
        owners = cells(self.rows[row], seconds, columns).tolist()
        return segments(owners, self.marks[row], labels=self._shortest_room * columns >= seconds)

    @cached_property
    def _shortest_room(self) -> float:
        """Seconds that a character of a label has at least, but for the few that have the least."""
        room = [0.0]
        for row, marks in zip(self.rows, self.marks, strict=True):
            taken = zip(row.op.tolist(), (row.finish - row.start).tolist(), strict=True)
            room += [seconds / len(marks[op].label) for op, seconds in taken if marks[op].label]
        return float(np.quantile(room[1:] or room, FEW, method="lower")) * (1 + 1e-9)

    def text(self, seconds: float, width: int) -> str:
        """One line per row, `width` characters wide, an axis, and the legend, whose entries are not broken.

        Links that carry too little to be seen are left out.
        """
        margin = max(len(row.label) for row in self.rows)
        columns = max(width - margin - 3, 1)
        lines = []
        for at, row in enumerate(self.rows):
            found = list(self.segments(at, seconds, columns))
            if not row.link or any(piece.owner != IDLE for piece in found):
                lines.append(f"{row.label:<{margin}} |{''.join(''.join(piece[1:]) for piece in found)}|")
        lines.append(f"{'':<{margin}} 0{f'{seconds:.4g} s':>{columns}}")
        unbroken = (entry.replace(" ", "\0") for entry in self.legend)
        lines += [line.replace("\0", " ") for line in textwrap.wrap("  ".join(unbroken), max(width, 20))]
        return "\n".join(lines)


def image(rows: Sequence[GanttRow], seconds: float, width: int, row_height: int) -> NDArray[np.uint8]:
    """(rows * row_height, width, 3) the rows from top to bottom; a colour per op, links in a paler tone."""
    bands = []
    for row in rows:
        owners = cells(row, seconds, width)
        colours = np.where(owners[:, None] == IDLE, 245, _colour(owners))
        colours = (colours + 255) // 2 if row.link else colours
        band = np.tile(colours[None], (row_height, 1, 1))
        band[-1] = 200  # a line between rows
        bands.append(band)
    return np.concatenate(bands).astype(np.uint8)


def _colour(op: Ints) -> Ints:
    """(ops, 3) neighbours get hues far apart: steps of the golden angle."""
    hue = (op[:, None] * 0.618034 + np.array([0.0, 1 / 3, 2 / 3])) % 1.0
    colour: Ints = (150 + 90 * np.cos(2 * np.pi * hue)).astype(np.int64)
    return colour
