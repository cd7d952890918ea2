"""Views: how a tensor is looked at, dimension by dimension.

A view is one of these, from the dimensions of what is looked at to those of the view:

    reindexed    a dimension becomes one of the view, as it is or from an index on; others are fixed at one index;
                 the view may have new ones (permute, expand, slice, select)
    reshaped     groups of neighbouring dimensions become other ones with as many elements
                 (8, 256, 512) -> (8, 256, 8, 64):   8 | 256 | 512  ->  8 | 256 | 8 64
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from graphs.notation.signatures import Read, Shape, View


@dataclass(frozen=True)
class Reindexed:
    """A view whose dimensions are dimensions of what is looked at."""

    before: Shape
    after: Shape
    source: tuple[int | None, ...]  # (dimensions of the view,) which dimension it is; None: a new one, always the same
    start: tuple[int, ...]  # (dimensions of the view,) the index there that is its first one
    fixed: tuple[tuple[int, int], ...] = ()  # dimensions that are not in the view, and the index at which they are read


@dataclass(frozen=True)
class Reshaped:
    """A view with the same elements in the same order; dimensions of 1 are in no group."""

    before: Shape
    after: Shape
    groups: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]  # dimensions before, and after


Step = Reindexed | Reshaped

_SAME = {"aten.alias", "aten.detach", "aten.lift_fresh"}
_RESHAPES = {
    "aten.view", "aten._unsafe_view", "aten.reshape", "aten.squeeze", "aten.unsqueeze", "aten.flatten",
    "aten.unflatten",
}  # fmt: skip


def steps(read: Read) -> tuple[Step, ...] | None:
    """The views between a tensor and an op that reads it; None if one of them is of another kind."""
    found, shape, pending = list[Step](), read.base, None
    for view in read.views:
        if view.function == "getitem":
            step = _picked(view, pending, shape)
        elif view.function.startswith("aten.split") or view.function == "aten.unbind":
            pending = view  # and the next one picks one of its parts
            continue
        else:
            step = _step(view, shape)
        if step is None:
            return None
        found.append(step)
        shape, pending = step.after, None
    return tuple(found) if shape == read.shape else None


def _step(view: View, shape: Shape) -> Step | None:
    given: Sequence[Any] = view.arguments
    if view.function in _SAME:
        return _kept(shape)
    if view.function in _RESHAPES:
        return reshaped(shape, view.shape)
    if view.function == "aten.permute":
        order = [int(i) % len(shape) for i in given[0]]
        return Reindexed(shape, view.shape, tuple(order), (0,) * len(order))
    if view.function in ("aten.transpose", "aten.t"):
        order = list(range(len(shape)))
        one, other = (given[0], given[1]) if given else (0, -1)
        if order:
            order[one], order[other] = order[other], order[one]
        return Reindexed(shape, view.shape, tuple(order), (0,) * len(order))
    if view.function == "aten.expand":
        new = len(view.shape) - len(shape)
        repeated = [i < new or shape[i - new] != size for i, size in enumerate(view.shape)]
        source = tuple(None if again else i - new for i, again in enumerate(repeated))
        return _with_fixed(shape, view.shape, source, (0,) * len(source))
    if view.function == "aten.select":
        dimension, index = int(given[0]) % len(shape), int(given[1])
        return _picking(shape, dimension, index % shape[dimension])
    if view.function == "aten.slice":
        dimension = int(given[0]) % len(shape) if given else 0
        start = int(given[1] or 0) if len(given) > 1 else 0
        first = max(start + shape[dimension], 0) if start < 0 else min(start, shape[dimension])
        return _from(shape, view.shape, dimension, first) if len(given) < 4 or given[3] == 1 else None
    return None


def _picked(view: View, split: View | None, shape: Shape) -> Step | None:
    """One of several: of a split tensor, or of the outputs of an op, whose first one alone is known."""
    number = int(view.arguments[0])
    if split is None:
        return _kept(shape) if number == 0 and view.shape == shape else None
    dimension = int(split.arguments[1] if len(split.arguments) > 1 else 0) if split.function != "aten.unbind" else 0
    if split.function == "aten.unbind":
        dimension = int(split.arguments[0]) % len(shape) if split.arguments else 0
        return _picking(shape, dimension, number)
    dimension %= len(shape)
    sizes = split.arguments[0]
    start = number * int(sizes) if isinstance(sizes, int) else sum(int(size) for size in sizes[:number])
    return _from(shape, view.shape, dimension, start)


def _kept(shape: Shape) -> Reindexed:
    return Reindexed(shape, shape, tuple(range(len(shape))), (0,) * len(shape))


def _from(shape: Shape, after: Shape, dimension: int, start: int) -> Reindexed:
    starts = tuple(start if i == dimension else 0 for i in range(len(shape)))
    return Reindexed(shape, after, tuple(range(len(shape))), starts)


def _picking(shape: Shape, dimension: int, index: int) -> Reindexed:
    source = tuple(i for i in range(len(shape)) if i != dimension)
    after = tuple(shape[i] for i in source)
    return Reindexed(shape, after, source, (0,) * len(source), ((dimension, index),))


def _with_fixed(shape: Shape, after: Shape, source: tuple[int | None, ...], start: tuple[int, ...]) -> Reindexed:
    """Dimensions of 1 that the view repeats are read at their only index."""
    fixed = tuple((i, 0) for i in range(len(shape)) if i not in source)
    return Reindexed(shape, after, source, start, fixed)


def reshaped(before: Shape, after: Shape) -> Reshaped | None:
    """The smallest groups of neighbouring dimensions with as many elements before and after; None without elements."""
    if prod(before) != prod(after) or 0 in before:
        return None
    groups = list[tuple[tuple[int, ...], tuple[int, ...]]]()
    left = [i for i, size in enumerate(before) if size > 1]
    right = [i for i, size in enumerate(after) if size > 1]
    while left:
        ours, theirs = [left.pop(0)], [right.pop(0)]
        while (here := prod(before[i] for i in ours)) != (there := prod(after[i] for i in theirs)):
            if here < there:
                ours.append(left.pop(0))
            else:
                theirs.append(right.pop(0))
        groups.append((tuple(ours), tuple(theirs)))
    return Reshaped(before, after, tuple(groups))
