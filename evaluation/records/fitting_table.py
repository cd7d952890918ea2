"""A table that fits the width that it is shown in: a terminal's, or the 80 columns of a log."""

import copy
import re
import textwrap
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

NAMES = (1000, 28, 18, 14)  # characters of a line of a name, the more the better
JOINED = "\N{BRAILLE PATTERN BLANK}"  # in place of a space at which no line may end, until lines are broken
_UNIT = re.compile(r"(?<=\d) (?=(?:[KMGTP]iB|B|s|ms|µs|ns)\b)")  # "16.0 GiB", "12.3 ms"
_INTERVAL = re.compile(r"(\[[\d.]+,) ([\d.]+\])")  # "[1.00, 1.05]"
_PART = re.compile(r"@?[^:,@_+]+[:,_+]?|.")  # of "annealing:policy=default", "human_expert" and "bert@p100:devices=2"


class FittingTable(Table):
    """A table that, where it would be too wide, has narrow gaps and breaks lines of cells where that reads well.

    That is between a value and what follows it, but not before its unit; and in a name, after ":", "," and "_".
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table, as wide as there is room for."""
        if self._width_in(console, options) <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        narrow = copy.deepcopy(self)
        narrow.padding, narrow.show_edge = 0, False  # what is between columns is one blank
        for name in NAMES:
            for column in narrow.columns:
                _narrow(column, name)
            if narrow._width_in(console, options) <= options.max_width:
                break
        yield from _shown(Table.__rich_console__(narrow, console, options))
        yield Segment.line()

    def _width_in(self, console: Console, options: ConsoleOptions) -> int:
        """As wide as it would like to be."""
        return self.__rich_measure__(console, options.update(width=10**6)).maximum


def _narrow(column: Column, name: int) -> None:
    """Break lines of a column: of names where they are longer, of the heading where it is wider than the cells."""
    column._cells = [_breakable(cell, name) for cell in column._cells]
    column.min_width, column.overflow = None, "fold"
    lines = [line for cell in column._cells for line in str(cell).split("\n")]
    if isinstance(column.header, str):
        header = str(_breakable(column.header, name))
        width = max([*map(len, lines), *map(len, header.split())])
        column.header = "\n".join(textwrap.fill(line, width, break_long_words=False) for line in header.split("\n"))


def _shown(rendered: RenderResult) -> Iterator[RenderableType | Segment]:
    for each in rendered:
        yield Segment(each.text.replace(JOINED, " "), *each[1:]) if isinstance(each, Segment) else each


def _breakable(cell: RenderableType, name: int) -> RenderableType:
    """A cell whose lines end where they should, and a line of a name after `name` characters."""
    if isinstance(cell, Text):
        return Text(_broken(cell.plain, name), cell.style) if name < len(cell) or " " in cell.plain else cell
    return _broken(cell, name) if isinstance(cell, str) else cell


def _broken(text: str, name: int) -> str:
    joined = _INTERVAL.sub(rf"\1{JOINED}\2", _UNIT.sub(JOINED, text))
    if name <= NAMES[2]:
        joined = joined.replace(" [", "\n[")
    return re.sub(r"\S+", lambda word: _in_lines(word[0], name), joined)


def _in_lines(word: str, longest: int) -> str:
    """A word in lines that are no longer, if its parts are not."""
    lines = [""]
    for part in _PART.findall(word) if len(word) > longest else [word]:
        if lines[-1] and len(lines[-1]) + len(part) > longest:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)
