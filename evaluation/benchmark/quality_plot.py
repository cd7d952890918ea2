"""The leaderboard's plot: quality over simulations, a panel for each set of suites."""

from collections.abc import Mapping, Sequence
from math import ceil, inf

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from evaluation.benchmark.verification import VerifiedRow
from evaluation.drawing.figures import BLUE, GREEN, GREY, ORANGE

COLUMNS = 2
HEIGHT = 3.2  # inches, of a row of panels
LEAST = 0.5  # where rows without simulations are drawn
MOST = 500_000  # simulations, with room for names
SIMULATIONS = {LEAST: "0", 1: "1", 10: "10", 100: "100", 1_000: "1,000", 10_000: "10,000"}
RATIOS = (1, 1.2, 1.5, 2, 3, 5, 10, 20, 50)
OFTEN = 0.9  # of problems on which a row fits that is named
COLOURS = {"no": BLUE, "zero-shot": ORANGE, "per graph": GREEN}
NAMES = {"no": "no policy", "zero-shot": "policy, zero-shot", "per graph": "policy, learning per graph"}


def height_of(panels: int) -> float:
    """Of the figure, in inches."""
    return HEIGHT * ceil(panels / COLUMNS)


def paint(sections: Mapping[str, Sequence[VerifiedRow]], figure: Figure) -> None:
    """A mark for each row, with its interval; those that are `unbeaten` are named."""
    columns = min(COLUMNS, len(sections))
    grid = figure.subplots(ceil(len(sections) / columns), columns, squeeze=False).ravel()
    for axis in grid[len(sections) :]:
        axis.remove()
    for axis, (name, rows) in zip(grid, sections.items(), strict=False):
        axis.set_title(name.replace(",", ", "))
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlim(LEAST / 1.5, MOST)
        axis.xaxis.set_major_locator(FixedLocator(list(SIMULATIONS)))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: SIMULATIONS[value]))
        axis.yaxis.set_major_locator(FixedLocator(RATIOS))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for each in (axis.xaxis, axis.yaxis):
            each.set_minor_locator(NullLocator())
        axis.grid()
        known = [row for row in rows if row.over_best.count]
        front = unbeaten(known)
        for row in known:
            at = _at(row)
            axis.plot([at, at], [row.over_best.low, row.over_best.high], color=GREY, linewidth=1)  # NaN is not drawn
            axis.plot(at, row.over_best.value, "o", color=COLOURS[row.learns], markersize=4)
            if row in front:
                axis.annotate(row.title, (at, row.over_best.value), (5, 3), textcoords="offset points", fontsize=6)
    for axis in grid[: len(sections)]:
        axis.set_xlabel("simulations per problem")
        axis.set_ylabel("step time over best known")
    seen = {row.learns for rows in sections.values() for row in rows}
    for learns in (each for each in COLOURS if each in seen):
        grid[0].plot([], [], "o", color=COLOURS[learns], markersize=4, label=NAMES[learns])
    grid[0].legend(fontsize=6, loc="upper right")


def unbeaten(rows: Sequence[VerifiedRow]) -> list[VerifiedRow]:
    """Of rows that fit on nine problems of ten, those that none with as few simulations is better than."""
    found, best = list[VerifiedRow](), inf
    for row in sorted(rows, key=lambda row: (_at(row), row.over_best.value)):
        if row.share_that_fits >= OFTEN and row.over_best.value < best:
            found.append(row)
            best = row.over_best.value
    return found


def _at(row: VerifiedRow) -> float:
    return max(row.simulations, LEAST)
