"""A table for the terminal of what weights, outputs and gradients are divided by."""

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from evaluation.records.formatting import table
from evaluation.tables.folding import FoldedLine, folded
from evaluation.tables.split_rows import SplitRows

MOST = 60  # lines: what a screen may hold
KEY = (
    "512/A: a dimension of which each device along axis A has a part; 8·64: one dimension of 512; +A: partial sums, "
    "one on each device along A until they are added up. Gradients that are divided as what they are of are left out."
)


def split_table(rows: SplitRows) -> RenderableType:
    """A line for each op, repeated layers once; at most 60, and then how many more there are."""
    lines = folded(rows.rows)
    axes = ", ".join(f"{letter}: {parts}" for letter, parts in rows.axes.items())
    shown = table(
        f"What is divided by what: axis {axes}",
        Column("op", overflow="fold"), "divided by", "weights", "output", "gradients", caption=KEY,
    )  # fmt: skip
    for line in lines[:MOST]:
        _add(shown, line)
    more = len(lines) - MOST
    if more <= 0:
        return shown
    return Group(shown, Text(f"And {more} more lines; `placelab simulate GRAPH PLAN --splits FILE` draws all.\n"))


def _add(shown: Table, line: FoldedLine) -> None:
    times = f"  {line.times} times" if line.times > 1 else ""
    label = Text("  " * line.depth + line.label).append(times, "bold")
    if line.row is None:
        shown.add_row(label)
        return
    row = line.row
    weights, gradients = ("\n".join(map(str, several)) for several in (row.weights, row.gradients))
    shown.add_row(label, row.divided_by, weights, "?" if row.output is None else str(row.output), gradients)
