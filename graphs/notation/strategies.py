"""Strategies: all ways of dividing an operator along one index variable, and what each needs and makes.

They are found by comparing the boxes that the two sides of a cut touch (Tofu, section 4.2), in closed ranges of
integers. So a window of KH rows has a halo of KH - 1, and 2 x 2 windows at a stride of 2 have none.
"""

from dataclasses import dataclass
from enum import Enum

from graphs.notation.operator import Access, Operator
from graphs.notation.ranges import Range


class How(Enum):
    """How the parts of a divided operator share a tensor."""

    SLICE = "slice"  # each its own range of one dimension, which may overlap its neighbours'
    WHOLE = "whole"  # each all of it
    PARTIAL = "partial"  # written only: each something for all elements, which remains to be reduced


@dataclass(frozen=True)
class Part:
    """What a part of a divided operator needs, or makes, of one tensor."""

    how: How
    dimension: int = -1  # of a slice
    halo: int = 0  # how many indices two neighbouring parts of a slice share; in a result they remain to be added up
    reducer: str = ""  # of what remains to be reduced

    def __str__(self) -> str:
        if self.how is How.SLICE:
            return f"{self.dimension}" + (f" with a halo of {self.halo}" if self.halo else "")
        return self.reducer if self.how is How.PARTIAL else self.how.value


WHOLE = Part(How.WHOLE)


@dataclass(frozen=True)
class Strategy:
    """A way of dividing an operator: along one variable."""

    variable: str
    reads: tuple[Part, ...]  # as the operator's
    writes: tuple[Part, ...]
    exchanged: int = 0  # elements of statistics that the parts add up while they run

    def __str__(self) -> str:
        reads, writes = (" ".join(map(str, parts)) for parts in (self.reads, self.writes))
        return f"{self.variable}: {reads} -> {writes}"


def strategy(operator: Operator, name: str) -> Strategy:
    """What dividing a variable, of size 2 at least, asks of what is read and leaves of what is written."""
    return Strategy(
        name,
        tuple(_read(operator, access, name) for access in operator.reads),
        tuple(_written(operator, access, name) for access in operator.writes),
        operator.exchanged(name),
    )


def _read(operator: Operator, access: Access, name: str) -> Part:
    return _slice(operator, access, name) or WHOLE


def _written(operator: Operator, access: Access, name: str) -> Part:
    found = _slice(operator, access, name)
    if found is None:
        return WHOLE if name in access.apart else Part(How.PARTIAL, reducer=operator.reducer)
    return Part(How.SLICE, found.dimension, found.halo, operator.reducer if found.halo else "")


def _slice(operator: Operator, access: Access, name: str) -> Part | None:
    """The slice that dividing a variable makes of a tensor; None where both sides touch all of it."""
    size = operator.sizes[name]
    dimensions = [i for i, each in enumerate(access.index) if each is not None and each.coefficient(name)]
    if len(dimensions) != 1:  # not divided; or along a diagonal, of which both sides are given all
        return None
    [dimension] = dimensions
    index = access.index[dimension]
    assert index is not None
    low, high = (index.range(operator.part(**{name: side})) for side in _sides(size))
    if index.coefficient(name) < 0:
        low, high = high, low
    return Part(How.SLICE, dimension, max(low.high - high.low + 1, 0))


def _sides(size: int) -> tuple[Range, Range]:
    middle = size // 2
    return Range(0, middle - 1), Range(middle, size - 1)
