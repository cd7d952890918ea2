"""A plot of what each weight and activation is divided by: a box per dimension, in the colours of the mesh's axes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from evaluation.drawing.figures import GREEN, GREY, ORANGE, PURPLE, RED, SKY, WIDTH, YELLOW, save_figure, svg
from evaluation.drawing.shades import INK
from evaluation.tables.folding import FoldedLine, folded
from evaluation.tables.split_rows import OTHER, Dimension, DividedTensor, SplitRow, SplitRows

COLOURS = (ORANGE, SKY, GREEN, YELLOW, PURPLE)  # of the mesh's axes: black is legible on them
OTHER_COLOUR = RED
WHOLE = 0.28  # opacity of what is not divided
MOST = 200  # lines: a taller figure is of no use
PARTS = 8  # at most are told apart in a box
HEADS = ("weights", "output", "gradients")

# in inches
LINE, HEAD = 0.27, 0.19  # heights of a tensor, and of what stands above rows that repeat
NAMES = 2.25  # width of the names
BOX = 0.38  # a dimension, unless there are too many; half of it for partial sums
GAP, APART = 0.06, 0.2  # between dimensions, and between columns
CHARACTER = 0.04  # of what is said of a tensor


def split_chart(rows: SplitRows) -> str:
    """A line per op, repeated layers once: its weights, its output, and gradients that differ from these.

    Dimensions are grey if they are whole, and in the colour of the axis that divides them otherwise; hatched boxes
    are partial sums. Each is labelled with its size, and with the index by which the op counts it.
    """
    chart = _Chart(rows)
    return svg(chart.paint, height=chart.height, description=f"What tensors are divided by: {rows.summary}")


def save_split_chart(rows: SplitRows, path: Path) -> None:
    """Write the chart as PNG, SVG or a page (HTML). Raises InputError for another ending."""
    chart = _Chart(rows)
    save_figure(
        path, chart.paint, chart.height, what="a chart of splits", name=rows.name, facts=f"{rows.summary}.",
        charts=lambda: [split_chart(rows)],
    )  # fmt: skip


@dataclass(frozen=True)
class _Said:
    """A tensor of a column, and what is said of it."""

    tensor: DividedTensor
    about: str = ""

    def width(self, box: float) -> float:
        """Of its boxes and words, in inches."""
        dimensions, partial = len(self.tensor.dimensions), len(self.tensor.partial)
        boxes = sum(_spaces(self.tensor)) * GAP + dimensions * box + partial * (box / 2 + GAP)
        return boxes + (GAP + CHARACTER * len(self.about) if self.about else 0.0)


class _Chart:
    """What is drawn where."""

    def __init__(self, rows: SplitRows) -> None:
        lines = folded(rows.rows)
        self.rows, self.lines, self.more = rows, lines[:MOST], max(len(lines) - MOST, 0)
        self.columns = [[] if line.row is None else _columns(line.row) for line in self.lines]
        self.total = LINE * (1 + (self.more > 0)) + sum(map(_height, self.columns))
        self.height = self.total + 0.55
        self.colours = dict(zip(rows.axes, COLOURS * 6, strict=False)) | {OTHER: OTHER_COLOUR}
        self.counts = {axis: int(parts) if parts.isdigit() else 2 for axis, parts in rows.axes.items()}
        self.box, self.left = self._fitted()

    def _fitted(self) -> tuple[float, list[float]]:
        """The width of a box, and where each column begins."""
        box, room = BOX, WIDTH - NAMES
        for _ in range(20):
            widths = [
                max((said.width(box) for each in self.columns if each for said in each[place]), default=0.0) + APART
                for place in range(len(HEADS))
            ]
            if sum(widths) <= room:
                break
            box *= 0.96
        left = [NAMES + sum(widths[:place]) for place in range(len(HEADS))]
        return box, left

    def paint(self, figure: Figure) -> None:
        """Draw all."""
        axes = figure.subplots()
        axes.set_axis_off()
        axes.set_xlim(0, WIDTH)
        axes.set_ylim(self.total, 0)
        for x, head in zip([0.0, *self.left], ("op", *HEADS), strict=True):
            axes.text(x, LINE / 2, head, fontsize=8, va="center", fontweight="bold")
        y = LINE
        for line, columns in zip(self.lines, self.columns, strict=True):
            self._line(axes, line, columns, y)
            y += _height(columns)
        if self.more:
            axes.text(0, y + LINE / 2, f"and {self.more} more lines", fontsize=7, va="center", style="italic")
        handles = [Patch(facecolor=self.colours[axis], label=f"{axis}: {p}") for axis, p in self.rows.axes.items()]
        handles += [Patch(facecolor=GREY, alpha=WHOLE, label="whole")]
        handles += [Patch(facecolor="none", edgecolor=INK, hatch="///", label="+ partial sums")]
        figure.legend(handles=handles, loc="outside upper left", ncols=7, fontsize=8, handlelength=1)

    def _line(self, axes: Axes, line: FoldedLine, columns: Sequence[Sequence[_Said]], y: float) -> None:
        times = f"  x {line.times}" if line.times > 1 else ""
        room, label = 44 - 2 * line.depth - len(times), line.label
        label = label if len(label) <= room else f"{label[: room - 1]}…"
        x, weight = 0.1 * line.depth, "bold" if line.row is None else "normal"
        axes.text(x, y + LINE * 0.36, label + times, fontsize=6.5, va="center", fontweight=weight)
        if line.row is not None:
            axes.text(x + 0.1, y + LINE * 0.8, line.row.divided_by, fontsize=5, va="center", color=GREY)
        for left, several in zip(self.left, columns, strict=False):
            for place, said in enumerate(several):
                self._tensor(axes, said, left, y + place * LINE)

    def _tensor(self, axes: Axes, said: _Said, x: float, y: float) -> None:
        tensor = said.tensor
        for each, is_apart in zip(tensor.dimensions, _spaces(tensor), strict=True):
            x += GAP * is_apart
            self._dimension(axes, each, x, y)
            x += self.box
        for axis in tensor.partial:
            x, width = x + GAP, self.box / 2
            edge = {"facecolor": "none", "edgecolor": self.colours[axis], "hatch": "///", "linewidth": 0.6}
            axes.add_patch(Rectangle((x, y + 0.03), width, LINE - 0.06, **edge))  # type: ignore[arg-type]
            axes.text(x + width / 2, y + LINE / 2, f"+{axis}", fontsize=6, ha="center", va="center")
            x += width
        about = said.about or ("" if tensor.dimensions else "one number")
        axes.text(
            x + GAP * bool(tensor.dimensions or tensor.partial),
            y + LINE / 2,
            about,
            fontsize=5,
            va="center",
            color=GREY,
        )

    def _dimension(self, axes: Axes, each: Dimension, x: float, y: float) -> None:
        """A box: a band for each axis that divides it, with its parts."""
        top, height = y + 0.03, LINE - 0.06
        if not each.axes:
            axes.add_patch(Rectangle((x, top), self.box, height, facecolor=GREY, alpha=WHOLE, linewidth=0))
        for place, axis in enumerate(each.axes):
            band, parts = height / len(each.axes), min(self.counts[axis], PARTS)
            width, colour = self.box / parts, self.colours[axis]
            for part in range(parts):
                corner = (x + part * width, top + place * band)
                axes.add_patch(Rectangle(corner, width, band, facecolor=colour, edgecolor="white", linewidth=0.3))
        ink, middle = "black" if each.axes else INK, x + self.box / 2
        index = f"{each.index} / {each.axes}" if each.axes else each.index
        axes.text(middle, top + height * 0.34, str(each.size), fontsize=5.5, ha="center", va="center", color=ink)
        axes.text(middle, top + height * 0.8, index, fontsize=4.5, ha="center", va="center", color=ink)


def _columns(row: SplitRow) -> list[list[_Said]]:
    """What is drawn of a row, per column."""
    weights = list[_Said]()
    for weight in row.weights:
        if weight.stored.layout == weight.read.layout or not weight.read.is_divided:
            weights.append(_Said(weight.stored, "" if weight.stored.layout == weight.read.layout else "read whole"))
        else:
            weights += [_Said(weight.stored, "stored"), _Said(weight.read, "read")]
    output = [] if row.output is None else [_Said(row.output)]
    return [weights, output, [_Said(each) for each in row.gradients]]


def _height(columns: Sequence[Sequence[_Said]]) -> float:
    return LINE * max(1, *map(len, columns)) if columns else HEAD


def _spaces(tensor: DividedTensor) -> list[bool]:
    """(dimensions,) whether a gap is before it: none is at the beginning, and within a dimension that has factors."""
    return [each.begins(before) and before is not None for before, each in tensor.neighbours]
