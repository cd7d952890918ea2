"""Gantt charts, as text and as pixels: what ran where, and when."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphs.op_graph import Floats, Ints

IDLE = -1
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, eq=False)
class Row:
    """What one device or link did."""

    label: str
    op: Ints  # (entries,) op that ran, or whose output was sent
    start: Floats  # (entries,) seconds; ascending for a link
    finish: Floats  # (entries,) seconds
    link: bool = False


def cells(row: Row, seconds: float, columns: int) -> Ints:
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


def draw(rows: Sequence[Row], seconds: float, names: Sequence[str], width: int) -> str:
    """One line per row, `width` characters wide, and what the letters stand for.

    With more ops than letters, time on ops is drawn as # and on transfers as =.
    """
    margin = max(len(row.label) for row in rows)
    columns = max(width - margin - 3, 1)
    lettered = len(names) <= len(LETTERS)
    lines = []
    for row in rows:
        mark = "=" if row.link else "#"
        owners = cells(row, seconds, columns).tolist()
        bar = ("." if op == IDLE else LETTERS[op] if lettered else mark for op in owners)
        lines.append(f"{row.label:<{margin}} |{''.join(bar)}|")
    lines.append(f"{'':<{margin}} 0{f'{seconds:.4g} s':>{columns}}")
    if lettered:
        legend = "  ".join(f"{letter} {name}" for letter, name in zip(LETTERS, names, strict=False))
        lines += textwrap.wrap(legend, max(width, 20))
    return "\n".join(lines)


def image(rows: Sequence[Row], seconds: float, width: int, row_height: int) -> NDArray[np.uint8]:
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
