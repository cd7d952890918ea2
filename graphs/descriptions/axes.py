"""Axes: into which factors the dimensions of a graph's tensors, and the variables of its ops, are taken apart.

A view may merge dimensions, and an op then counts them with one variable: a product over heads of attention reads
(batch heads, positions, width), but its operands are made as (batch, positions, heads width). No box of the one is a
box of the other, unless all of them are taken apart into the same factors:

    scores[n]  n = 64           the tensor (8, 256, 512)         taken apart: n.0 = 8 samples, n.1 = 8 heads,
       n = 8 sample + head      512 = 64 head + width              512 = 8 heads, 64 wide

An axis is a dimension of a tensor, of a view, or a variable. Axes that stand for the same thing are *linked*, and so
have the same factors; *groups* of axes on both sides of a reshape have the same factors, one after the other. A factor
is named by its *stride*, the product of the sizes of those within it. Strides of one axis divide each other; where two
reshapes ask for strides that do not, the second one is not taken apart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd

import numpy as np

from graphs.algorithms.components import connected_components

Group = tuple[tuple[int, ...], tuple[int, ...]]  # axes on both sides of a reshape, outermost first


@dataclass
class Axes:
    """The axes of a graph while they are collected."""

    sizes: list[int] = field(default_factory=list)
    linked: list[tuple[int, int]] = field(default_factory=list)
    units: list[tuple[int, int]] = field(default_factory=list)  # an axis, and what its strides have to divide
    groups: list[Group] = field(default_factory=list)

    def add(self, sizes: Iterable[int]) -> list[int]:
        """Further axes of these sizes; their numbers."""
        first = len(self.sizes)
        self.sizes.extend(sizes)
        return list(range(first, len(self.sizes)))

    def link(self, one: int, other: int, start: int = 0) -> None:
        """Two axes stand for the same thing, from an index of `one` on: then no factor crosses its limits."""
        self.linked.append((one, other))
        if start or self.sizes[one] != self.sizes[other]:
            self.units += [(one, abs(start)), (one, self.sizes[one]), (one, self.sizes[other])]

    def lock(self, axis: int) -> None:
        """An axis is not taken apart: its indices are computed with, or their order counts."""
        self.units.append((axis, 1))


@dataclass(frozen=True, eq=False)
class Factors:
    """What axes are taken apart into."""

    component: Sequence[int]  # (axes,) linked ones have the same
    strides: Sequence[tuple[int, ...]]  # (components,) from the largest to the smallest, which is more than 1
    sizes: Sequence[int]  # (axes,)

    def of(self, axis: int) -> tuple[int, ...]:
        """The sizes of the factors of an axis, outermost first; their product is its size."""
        found, size = list[int](), self.sizes[axis]
        for stride in self.strides[self.component[axis]]:
            found.append(size // stride)
            size = stride
        return (*found, size)

    def stride(self, axis: int) -> int:
        """How many indices of an axis lie between two of its outermost factor."""
        strides = self.strides[self.component[axis]]
        return strides[0] if strides else 1


def factors_of(axes: Axes) -> Factors:
    """The factors that all linked axes and all groups can agree upon, groups in their order."""
    sizes = axes.sizes
    component = connected_components(np.array(axes.linked, np.int64).reshape(-1, 2), len(sizes)).tolist()
    unit, parted = _units(axes, component)
    strides: list[set[int]] = [{unit[c]} if parted[c] and unit[c] > 1 else set() for c in range(len(unit))]
    groups = list(dict.fromkeys(_by_component(group, component, sizes) for group in axes.groups))
    failed = set[int]()
    changed = True
    while changed:
        changed = False
        for number, group in enumerate(groups):
            if number in failed:
                continue
            asked = _asked(group, strides)
            if asked is None or not all(_may_have(strides[c], own, unit[c]) for c, own in asked.items()):
                failed.add(number)
                continue
            for c, own in asked.items():
                changed |= not own <= strides[c]
                strides[c] |= own
    return Factors(component, [tuple(sorted(each, reverse=True)) for each in strides], sizes)


def _units(axes: Axes, component: Sequence[int]) -> tuple[list[int], list[bool]]:
    """(components,) what all strides have to divide, and whether that is a stride itself."""
    count = max(component, default=-1) + 1
    unit, parted = [0] * count, [False] * count
    for axis, number in axes.units:
        unit[component[axis]] = gcd(unit[component[axis]], number)
        parted[component[axis]] = True
    for axis, size in enumerate(axes.sizes):
        c = component[axis]
        unit[c] = gcd(unit[c], size)
    return unit, parted


_Sized = tuple[tuple[int, int], ...]  # component and size of each axis


def _by_component(group: Group, component: Sequence[int], sizes: Sequence[int]) -> tuple[_Sized, _Sized]:
    left, right = (tuple((component[axis], sizes[axis]) for axis in side) for side in group)
    return left, right


def _asked(group: tuple[_Sized, _Sized], strides: Sequence[set[int]]) -> dict[int, set[int]] | None:
    """The strides that each component needs so that both sides have the same factors; None if there are no such."""
    limits = set[int]()
    for side in group:
        within = 1
        for c, size in reversed(side):
            limits |= {within, *(within * stride for stride in strides[c] if stride < size)}
            within *= size
    ordered = sorted(limits)
    if any(larger % smaller for smaller, larger in pairwise(ordered)):
        return None
    asked: dict[int, set[int]] = {}
    for side in group:
        within = 1
        for c, size in reversed(side):
            own = [limit for limit in ordered if within < limit < within * size]
            if any(limit % within or within * size % limit for limit in own):
                return None
            asked.setdefault(c, set()).update(limit // within for limit in own)
            within *= size
    return asked


def _may_have(strides: set[int], further: set[int], unit: int) -> bool:
    """Whether a component can have these strides as well: each divides the next larger one, and the unit."""
    ordered = sorted(strides | further)
    return all(unit % stride == 0 for stride in ordered) and all(
        larger % smaller == 0 for smaller, larger in pairwise(ordered)
    )
