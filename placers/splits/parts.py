"""Parts: the box of a tensor that each device of a mesh needs or makes, for every option of dividing an op.

An option names an index variable per axis of the mesh, the outermost first; a variable that several axes divide is cut
again inside of its part. Of the axes a beginning may be looked at alone: with the first two of a mesh (2, 2, 2) there
are four parts, which the third divides further.

    mesh (2, 2), option ("b", "o") of y[b, o]          option ("b", "i"), i summed over
        device  0  y[first half, first half]               0  y[first half, :]   a partial sum
                1  y[first half, second half]              1  y[first half, :]   the other
                2  y[second half, first half]              2  y[second half, :]  ...
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from graphs.notation.operator import Access, Operator
from graphs.notation.strategies import How, Strategy, strategy
from graphs.op_graph import Bools, Floats, Ints
from placers.splits.split_graph import NONE

Option = tuple[str, ...]  # (axes,) the index variable that each axis divides, or NONE


@dataclass(frozen=True, eq=False)
class SplitParts:
    """What the devices need, or make, of one tensor: along the axes before `first`, then along one more, up to all."""

    mesh: tuple[int, ...]
    first: int
    low: tuple[Ints, ...]  # per number of axes, from `first`: (options, parts, dimensions)
    high: tuple[Ints, ...]  # the last index, inclusive
    elements: tuple[Floats, ...]  # per number of axes: (options, parts)
    region: tuple[Ints, Ints]  # (dimensions,) first and last index of all that is needed, or made: of a part
    is_partial: Bools  # (options, axes) made: each part has a sum of its own, of the same elements
    is_whole: Bools  # (options, axes) the axis leaves the tensor undivided
    added: Floats  # (options, axes) elements that are sent to add up partial sums; before `first`, what axes since add


def parts(
    operator: Operator, access: Access, options: Sequence[Option], mesh: tuple[int, ...], made: bool, first: int = 0
) -> SplitParts:
    """The boxes of an operator's read, or of what it makes, for all options; they name the first axes of the mesh."""
    axes = len(options[0])
    lows, highs, elements = [], [], []
    for count in range(first, axes + 1):
        ranges = _ranges(operator, tuple(option[:count] for option in options), mesh[:count])
        low, high = _boxes(operator, access, ranges, (len(options), math.prod(mesh[:count])))
        lows.append(low)
        highs.append(high)
        elements.append(np.maximum(high - low + 1, 0).astype(np.float64).prod(axis=-1))
    roles = {name: _role(operator, access, name, made) for option in options for name in option}
    how = [[roles[name] for name in option] for option in options]
    is_partial = np.array([[role == (How.PARTIAL, 0) for role in row] for row in how], np.bool_).reshape(-1, axes)
    is_whole = np.array([[role[0] is not How.SLICE for role in row] for row in how], np.bool_).reshape(-1, axes)
    overlaps = np.array([[made and role[1] > 0 for role in row] for row in how], np.bool_).reshape(-1, axes)
    low, high = _boxes(operator, access, {}, (1, 1))
    region = low[0, 0], high[0, 0]
    needs_sums, is_copied = is_partial | overlaps, is_whole & ~is_partial
    added = np.zeros((len(options), axes))
    if needs_sums.any():
        totals = [_total(operator, access, options, mesh[:count]) for count in range(first)]
        totals += [each.sum(axis=1) for each in elements]
        added = _added(np.stack(totals, axis=1), needs_sums, is_copied, mesh)
        if first:  # what is charged already, with the axes before
            added[:, :first] -= _added(np.stack(totals[: first + 1], axis=1), needs_sums, is_copied, mesh)
    return SplitParts(
        mesh[:axes], first, tuple(lows), tuple(highs), tuple(elements), region, is_partial, is_whole, added
    )


def _total(operator: Operator, access: Access, options: Sequence[Option], mesh: tuple[int, ...]) -> Floats:
    """(options,) elements of all parts along the first axes."""
    ranges = _ranges(operator, tuple(option[: len(mesh)] for option in options), mesh)
    low, high = _boxes(operator, access, ranges, (len(options), math.prod(mesh)))
    total: Floats = np.maximum(high - low + 1, 0).astype(np.float64).prod(axis=-1).sum(axis=1)
    return total


def _added(totals: Floats, summed: Bools, copied: Bools, mesh: tuple[int, ...]) -> Floats:
    """(options, axes) elements that pass to add up, along each axis, what is partial; each copy does it by itself.

    `totals` are the elements of all parts, (options, axes + 1), before each axis is cut and after all are.
    """
    axes = totals.shape[1] - 1
    further = np.where(summed[:, :axes], np.maximum(np.diff(totals, axis=1), 0.0), 0.0)
    copies = np.where(copied[:, :axes], np.array(mesh[:axes], np.float64), 1.0)
    later = copies[:, ::-1].cumprod(axis=1)[:, ::-1] / copies  # those before are in the totals
    found: Floats = further * later
    return found


def largest_share(operator: Operator, options: Sequence[Option], mesh: tuple[int, ...]) -> Floats:
    """(options,) the share of the iteration space that the busiest device computes."""
    axes = len(options[0])
    ranges = _ranges(operator, tuple(options), mesh[:axes])
    share = np.ones((len(options), math.prod(mesh[:axes])))
    for name, (low, high) in ranges.items():
        share *= (high - low + 1) / operator.sizes[name]
    largest: Floats = share.max(axis=1)
    return largest


@lru_cache(4096)
def _strategy(operator: Operator, name: str) -> Strategy:
    return strategy(operator, name)


def _role(operator: Operator, access: Access, name: str, made: bool) -> tuple[How, int]:
    """How the parts share the tensor if a variable is divided, and how much neighbours overlap."""
    if name == NONE or operator.sizes[name] < 2:
        return How.WHOLE, 0
    found = _strategy(operator, name)
    of = zip(operator.writes if made else operator.reads, found.writes if made else found.reads, strict=True)
    part = next(part for own, part in of if own is access)
    return part.how, part.halo


@lru_cache(1024)  # for all that an operator reads and writes
def _ranges(operator: Operator, options: tuple[Option, ...], mesh: tuple[int, ...]) -> dict[str, tuple[Ints, Ints]]:
    """Of each variable that is divided, (options, parts) the first and the last value of it on each device."""
    shape = (len(options), math.prod(mesh))
    names = dict.fromkeys(name for option in options for name in option if name != NONE)
    ranges = {name: (np.zeros(shape, np.int64), np.full(shape, operator.sizes[name] - 1)) for name in names}
    coordinates = np.indices(mesh).reshape(len(mesh), -1) if mesh else np.zeros((0, 1), np.int64)
    for axis, length in enumerate(mesh):
        place = coordinates[axis]
        for name, (low, high) in ranges.items():
            rows = np.array([option[axis] == name for option in options])
            first, size = low[rows], high[rows] - low[rows] + 1
            low[rows] = first + _limit(size, place, length)
            high[rows] = first + _limit(size, place + 1, length) - 1
    return ranges


def _limit(size: Ints, place: Ints, length: int) -> Ints:
    """Where the part at each place begins, of `length` equal ones: rounded to the nearest as in `graphs.notation`."""
    limit: Ints = (2 * size * place + length) // (2 * length)
    return limit


def _boxes(
    operator: Operator, access: Access, ranges: dict[str, tuple[Ints, Ints]], shape: tuple[int, int]
) -> tuple[Ints, Ints]:
    """(options, parts, dimensions) the first and the last index of each dimension: `Access.region` of all at once."""
    lows = np.zeros((*shape, len(access.shape)), np.int64)
    highs = np.zeros((*shape, len(access.shape)), np.int64)
    for dimension, (index, size) in enumerate(zip(access.index, access.shape, strict=True)):
        if index is None:
            highs[:, :, dimension] = size - 1
            continue
        low = high = np.full(shape, index.constant)
        for name, factor in index.terms:
            first, last = ranges.get(name, (np.int64(0), np.int64(operator.sizes[name] - 1)))
            if factor < 0:
                first, last = last, first
            low, high = low + factor * first, high + factor * last
        lows[:, :, dimension] = np.maximum(low, 0)
        highs[:, :, dimension] = np.minimum(high, size - 1)
    return lows, highs


def exchanged(operator: Operator, options: Sequence[Option], mesh: tuple[int, ...]) -> Floats:
    """(options, axes) elements of statistics, such as the sums of a softmax, that pass to be added up along each axis.

    They are all-reduced over each variable that they are reduced over, in each group of devices that does so.
    """
    found = np.zeros((len(options), len(options[0])))
    for statistic in () if operator.is_number else operator.statistics:
        size = math.prod(operator.sizes[name] for name in statistic.index) * statistic.forward
        for row, option in enumerate(options):
            for axis, name in enumerate(option):
                if name == NONE or name in statistic.index:
                    continue
                groups = math.prod(
                    mesh[other]
                    for other, by in enumerate(option)
                    if by not in statistic.index and (other < axis or by == NONE)
                )
                found[row, axis] += 2.0 * (mesh[axis] - 1) * size * groups
    return found


def moved(source: SplitParts, target: SplitParts) -> Floats:
    """(options of the source, options of the target, axes) elements that pass between the parts along each axis.

    Before the first axis of the parts, it is what is added up once more since later axes make copies of it.

    `source` is what devices make or hold, `target` what they need. With one axis cut in two this is Tofu's table of
    costs (Wang et al. 2019, section 5.1), and along the axes its recursion c1 + 2 (c2 + 2 (c3 + ...)), of boxes A of
    the source, B of the target, r1 and r2 before the axis is cut, and n parts:

        partial -> cut     (n - 1) |r1|                     reduce-scatter
        partial -> whole   (n - 1) (|r1| + |r2|)            reduce-scatter and all-gather; twice |r1| where r1 = r2
        whole   -> cut     0
        cut     -> cut     |B| in r1 that is not in A       all-to-all, or a halo
        cut     -> whole   (n - 1) |r2|                     all-gather
        whole   -> whole   (n - 1) (|r2| - |r1 and r2|)

    That is what the parts lack of what they need, added up over them, less what those before the axis was cut lacked.
    Over all axes it is the least number of elements that can pass, each from one device to one other, if copies of a
    partial sum, which axes make that divide nothing, are added up by themselves: not through the links between copies.
    """
    scattered = source.is_partial[:, None, :] & target.is_whole[None, :, :]  # each part makes its share of the sums
    shares = np.where(scattered, np.array(source.mesh, np.float64), 1.0).cumprod(axis=2)
    lacking = list[Floats]()
    for count in range(source.first, len(source.mesh) + 1):
        low = np.maximum(target.low[count - source.first], source.region[0])  # of what is made, which may be a part
        high = np.minimum(target.high[count - source.first], source.region[1])
        needed = np.maximum(high - low + 1, 0).astype(np.float64).prod(axis=-1).sum(axis=1)[None]
        lacking.append(needed - _common(source, target, count) / (shares[:, :, count - 1] if count else 1.0))
    passing: Floats = np.broadcast_to(source.added[:, None, :], scattered.shape).copy()
    passing[:, :, source.first :] += np.maximum(np.diff(np.stack(lacking, axis=2), axis=2), 0.0)
    return passing


def _common(source: SplitParts, target: SplitParts, count: int) -> Floats:
    """(options of the source, options of the target) elements that parts both hold and need, added up over parts."""
    of = count - source.first
    common = np.ones((len(source.is_partial), len(target.is_partial), source.elements[of].shape[1]))
    for dimension in range(source.low[of].shape[2]):
        low = np.maximum(source.low[of][:, None, :, dimension], target.low[of][None, :, :, dimension])
        high = np.minimum(source.high[of][:, None, :, dimension], target.high[of][None, :, :, dimension])
        common *= np.maximum(high - low + 1, 0)
    total: Floats = common.sum(axis=2)
    return total
