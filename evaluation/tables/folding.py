"""Folding: rows of a network's layers that repeat one another are shown once, with how often they are there.

    embed                         embed
    layers.0/mm  layers.0/relu    layers.0 to layers.2    3 times
    layers.1/mm  layers.1/relu      mm
    layers.2/mm  layers.2/relu      relu
    head                          head

Rows are alike if what they say is, up to numbers in their names. Modules within modules are folded from the inside.
"""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from evaluation.tables.split_rows import SplitRow, numberless

LONGEST = 400  # parts of what repeats
NAMED = 4  # of these, where several repeat together


@dataclass(frozen=True)
class FoldedLine:
    """A row, or what stands above rows that repeat."""

    names: tuple[str, ...]  # of the row; else of the first and the last module, or of all that repeat together
    row: SplitRow | None = None
    times: int = 1
    depth: int = 0
    is_range: bool = False

    @property
    def label(self) -> str:
        """The names."""
        return (" to " if self.is_range else ", ").join(self.names)


@dataclass(frozen=True)
class _Part:
    """A row, or the rows of a module, folded."""

    alike: Hashable
    first: str  # names of what it is
    last: str
    lines: tuple[FoldedLine, ...]


def folded(rows: Sequence[SplitRow]) -> tuple[FoldedLine, ...]:
    """The lines of a chart of rows."""
    return tuple(line for part in _folded(rows, 0) for line in part.lines)


def _folded(rows: Sequence[SplitRow], depth: int) -> list[_Part]:
    """Parts of rows that share their first names of modules."""
    parts = list[_Part]()
    for path, several in groupby(rows, key=lambda row: tuple(row.module.split("."))[: depth + 1] if row.module else ()):
        members = list(several)
        if len(path) <= depth:
            parts += [_Part(row.alike, row.name, row.name, (FoldedLine((row.name,), row),)) for row in members]
        else:
            name, inner = ".".join(path), _folded(members, depth + 1)
            lines = tuple(line for part in inner for line in part.lines)
            parts.append(_Part((numberless(name), *(part.alike for part in inner)), name, name, lines))
    return _repeats(parts)


def _repeats(parts: Sequence[_Part]) -> list[_Part]:
    """Parts with repeats folded: from the left, each time what covers most."""
    found, at = list[_Part](), 0
    keys = [part.alike for part in parts]
    while at < len(parts):
        period, times = 1, 1
        for length in range(1, min(LONGEST, (len(parts) - at) // 2) + 1):
            count = _times(keys, at, length)
            if count > 1 and count * length > period * times:
                period, times = length, count
        several = parts[at : at + period * times]
        found.append(_repeated(several[:period], several[-1].last, times) if times > 1 else parts[at])
        at += period * times
    return found


def _times(keys: Sequence[Hashable], at: int, length: int) -> int:
    count, period = 1, keys[at : at + length]
    while keys[at + count * length : at + (count + 1) * length] == period:
        count += 1
    return count


def _repeated(parts: Sequence[_Part], last: str, times: int) -> _Part:
    alike = times, *(part.alike for part in parts)
    first, lines = parts[0].first, [line for part in parts for line in part.lines]
    if len(lines) == 1:
        return _Part(alike, first, last, (replace(lines[0], times=times * lines[0].times),))
    is_range = len(parts) == 1
    head = FoldedLine((first, last) if is_range else _listed([part.first for part in parts]), None, times, 0, is_range)
    within = first if is_range else ""
    inner = [replace(line, names=_within(line.names, within), depth=line.depth + 1) for line in lines]
    return _Part(alike, first, last, (head, *inner))


def _listed(names: Sequence[str]) -> tuple[str, ...]:
    """The names of parts that repeat together, at most 4."""
    modules = list(dict.fromkeys(re.sub(r"_\d+$", "", name.partition("/")[0]) for name in names))
    return tuple(modules if len(modules) <= NAMED else [*modules[: NAMED - 1], "...", modules[-1]])


def _within(names: Sequence[str], module: str) -> tuple[str, ...]:
    """Names as they are called in a module."""
    return tuple(name[len(module) + 1 :] if name.startswith((f"{module}.", f"{module}/")) else name for name in names)
