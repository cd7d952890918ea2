"""Mesh: how the devices of an op are laid out over axes, along each of which one index is divided, or none.

    devices (4, 5, 6, 7), mesh (2, 2)        split ("n", "o")             split ("n", "")
                                             n 0..1        n 2..3         n 0..1     n 2..3
        4  5                                 4: o 0..3     6: o 0..3      4 and 5    6 and 7
        6  7                                 5: o 4..7     7: o 4..7      the same   the same

An axis has a number of equal parts, or one share for each part, as for devices of different speed: (2, (3, 1, 1)). An
index that several axes divide is divided by the first, and each part by the next.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

from graphs.notation.described import Described
from graphs.notation.operator import Space
from graphs.notation.ranges import Range, cut

Axis = int | tuple[float, ...]  # equal parts, or the share of each
Mesh = tuple[Axis, ...]
Split = tuple[str, ...]  # by axis the index that is divided; "" if none is


def length(axis: Axis) -> int:
    """How many parts an axis has."""
    return axis if isinstance(axis, int) else len(axis)


def shards(mesh: Mesh) -> int:
    """How many devices a mesh has."""
    return math.prod(map(length, mesh))


def mesh_of(mesh: Mesh, devices: int) -> Mesh:
    """The axes of an op on `devices` devices: all of the plan's, or the last ones if these have as many devices.

    So with a mesh (2, 2, 2) ops on four devices have (2, 2). If there are none, it is one axis of equal parts.
    """
    ends = (mesh[first:] for first in range(len(mesh)))
    return next((axes for axes in ends if shards(axes) == devices), (devices,))


def prime_factors(number: int) -> tuple[int, ...]:
    """The prime factors of a number, the largest first; of one there are none."""
    factors, factor = list[int](), 2
    while number > 1:
        if number % factor:
            factor += 1
        else:
            factors.append(factor)
            number //= factor
    return tuple(factors[::-1])


def split_of(described: Described | None, split: Split, axes: Mesh) -> Split:
    """By axis the index that an op divides; if the plan says nothing of the op, that of the batch, if it has one."""
    if split:
        return split
    return ("" if described is None else described.batch,) * len(axes)


@lru_cache(4096)
def coordinates(axes: Mesh) -> tuple[tuple[int, ...], ...]:
    """(shards,) the position of each shard along every axis; the last axis runs fastest."""
    found: list[tuple[int, ...]] = [()]
    for axis in axes:
        found = [(*before, at) for before in found for at in range(length(axis))]
    return tuple(found)


@lru_cache(65536)
def parts(size: int, axes: Mesh) -> tuple[Range, ...]:
    """The parts of an index of some size that these axes divide one after the other; the last axis runs fastest."""
    found = [Range(0, size - 1)]
    for axis in axes:
        found = [
            Range(part.low + within.low, part.low + within.high) for part in found for within in cut(part.size, axis)
        ]
    return tuple(found)


def spaces(sizes: Space, split: Sequence[str], axes: Mesh) -> list[dict[str, Range]]:
    """(shards,) the part of the iteration space that each shard of an op computes. `sizes` is the whole space."""
    found: list[dict[str, Range]] = [dict(sizes) for _ in coordinates(axes)]
    for index in dict.fromkeys(split):
        if not index:
            continue
        mine = [number for number, each in enumerate(split) if each == index]
        divided = tuple(axes[number] for number in mine)
        ranges = dict(zip(coordinates(divided), parts(sizes[index].size, divided), strict=True))
        for space, at in zip(found, coordinates(axes), strict=True):
            space[index] = ranges[tuple(at[number] for number in mine)]
    return found
