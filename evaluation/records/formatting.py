"""How seconds, bytes, ratios, estimates and tables are written for people."""

import math

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

from envs.objectives import rate_of
from evaluation.records.fitting_table import FittingTable
from evaluation.records.statistics import Estimate
from graphs.foundation.quantities import binary_unit, readable_seconds

NOTHING = "-"


def seconds(value: float) -> str:
    """Three digits, in the unit that suits: "12.3 ms"."""
    return NOTHING if math.isnan(value) else readable_seconds(value)


def worth(objective: str, value: float) -> str:
    """What an objective says of a plan, given as seconds: "12.3 ms", or "1,234.5 samples/s" if it is a rate."""
    rate = rate_of(objective)
    return f"{1 / value:,.1f} {rate}" if rate and value > 0 else seconds(value)


def memory(value: float) -> str:
    """One decimal, in binary units: "1.5 GiB"."""
    size, unit = binary_unit(value)
    return f"{value / size:.1f} {unit}" if size > 1 else f"{value:.0f} B"


def ratio(value: float) -> str:
    """Two decimals: "1.25", and a dash for what does not exist."""
    return NOTHING if math.isnan(value) else f"{value:.2f}"


def share(value: float) -> str:
    """Whole per cent, "57%"; below one a decimal, "0.3%"."""
    return f"{value:.1%}" if 0 < value < 0.01 else f"{value:.0%}".replace("-0%", "0%")  # of rounding


def interval(estimate: Estimate, digits: int = 2) -> str:
    """As "1.25 [1.10, 1.43]"; the mean alone where too few values leave no interval, "-" where there is no mean."""
    if estimate.count == 0:
        return NOTHING
    value, low, high = (f"{each:.{digits}f}" for each in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]" if estimate.has_interval else value


def table(title: str, *columns: Column | str, caption: str | None = None) -> Table:
    """A table for the terminal, without rows yet."""
    made = FittingTable(*columns, title=title, title_style="bold", caption=caption, box=SIMPLE_HEAD)
    made.title_justify = made.caption_justify = "left"
    return made


def numbers(*heads: str) -> list[Column]:
    """Columns of a table, whose cells are at the right."""
    return [Column(head, justify="right") for head in heads]
