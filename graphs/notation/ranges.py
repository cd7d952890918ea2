"""Ranges and boxes: closed ranges of integers, and parts of tensors with one such range per dimension."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from graphs.foundation.errors import InputError


class Range(NamedTuple):
    """The integers from `low` to `high`, both of them included; none if `high` is less than `low`."""

    low: int
    high: int

    @property
    def size(self) -> int:
        """How many integers it holds."""
        return max(self.high - self.low + 1, 0)

    def within(self, other: Range) -> Range:
        """The integers that are in both."""
        return Range(max(self.low, other.low), min(self.high, other.high))


Box = tuple[Range, ...]  # of a tensor, one range per dimension; () of a single number

EMPTY = Range(0, -1)


def whole(shape: Iterable[int]) -> Box:
    """The box of all elements of a tensor."""
    return tuple(Range(0, size - 1) for size in shape)


def elements(box: Box) -> int:
    """How many elements a box holds."""
    return math.prod(each.size for each in box)


def shape_of(box: Box) -> tuple[int, ...]:
    """The shape of what a box cuts out of a tensor."""
    return tuple(each.size for each in box)


def intersection(first: Box, second: Box) -> Box:
    """The elements that are in both boxes of one tensor; a box without elements if there are none."""
    return tuple(a.within(b) for a, b in zip(first, second, strict=True))


def contains(outer: Box, inner: Box) -> bool:
    """Whether all elements of `inner` are in `outer`."""
    return elements(intersection(outer, inner)) == elements(inner)


def hull(boxes: Iterable[Box]) -> Box:
    """The smallest box that holds all boxes of one tensor; those without elements do not count."""
    boxes = list(boxes)
    full = [box for box in boxes if elements(box)]
    if not full:
        return boxes[0]
    return tuple(
        Range(min(each.low for each in ranges), max(each.high for each in ranges)) for ranges in zip(*full, strict=True)
    )


def cut(size: int, shares: int | Sequence[float | Fraction]) -> tuple[Range, ...]:
    """0 .. size - 1 in consecutive parts: as many equal ones as `shares` says, or in proportion to it.

    Parts whose exact limits are no integers are rounded to the nearest, so equal ones differ by at most one. Raises
    InputError for shares that are none, negative, or add up to nothing.
    """
    weights = [Fraction(1)] * shares if isinstance(shares, int) else [Fraction(share) for share in shares]
    total = sum(weights, Fraction(0))
    if min(weights, default=Fraction(-1)) < 0 or total == 0:
        raise InputError(f"cannot divide {size} by shares {shares}; expected numbers >= 0 that are not all zero")
    limits, so_far = [0], Fraction(0)
    for weight in weights:
        so_far += weight
        limits.append(math.floor(so_far / total * size + Fraction(1, 2)))
    return tuple(Range(low, high - 1) for low, high in pairwise(limits))
