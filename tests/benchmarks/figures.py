"""What a benchmark says: figures, each with the bound it is held to."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured value."""

    name: str
    value: float
    unit: str  # "x" for a ratio to a peer measured in the same run
    bound: str  # ">= 200", "<= 2", or "" for a figure that is only reported
    holds: bool


def at_least(bound: float, name: str, value: float, unit: str = "x") -> Figure:
    """A figure that should not be below its bound."""
    return Figure(name=name, value=value, unit=unit, bound=f">= {bound:,g}", holds=value >= bound)


def at_most(bound: float, name: str, value: float, unit: str = "x") -> Figure:
    """A figure that should not be above its bound."""
    return Figure(name=name, value=value, unit=unit, bound=f"<= {bound:,g}", holds=value <= bound)


def reported(name: str, value: float, unit: str = "x") -> Figure:
    """A figure without a bound."""
    return Figure(name=name, value=value, unit=unit, bound="", holds=True)


def least_seconds(
    *functions: Callable[[], object], rounds: int = 7, clock: Callable[[], float] = time.process_time
) -> list[float]:
    """Per function the shortest time of one call; they take turns, so that what slows the machine slows all.

    CPU seconds, which other processes change little, unless the clock is another.
    """
    least = [float("inf")] * len(functions)
    for _ in range(rounds):
        for index, function in enumerate(functions):
            begin = clock()
            function()
            least[index] = min(least[index], clock() - begin)
    return least
