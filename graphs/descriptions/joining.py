"""Joining: what an op's accesses and views say about axes, and its accesses once axes are taken apart."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from graphs.descriptions.axes import Axes, Factors
from graphs.notation.affine import Affine, variable
from graphs.notation.operator import Access, Operator
from graphs.notation.ranges import contains, whole
from graphs.notation.views import Reindexed, Step

Names = Mapping[str, Mapping[str, int]]  # the variables that each is taken apart into, outermost first, and their sizes


class Digit(NamedTuple):
    """A factor of a dimension: how it is indexed, and which factor of the op's own view of the tensor it is."""

    size: int
    at: Affine | None  # None: all of it
    origin: int | None  # its number among the factors of the tensor as the op reads it; None if it is not among them


class Regroup(NamedTuple):
    """A reshape whose sides are not taken apart alike: all of the tensor's side is needed, reshaped, and then cut."""

    before: tuple[int, ...]  # the origins of the factors before it, in their order
    sizes: tuple[int, ...]  # of the factors after it
    after: tuple[tuple[int | None, Affine | None], ...]  # their origins, and what is needed of each


class ViewedRead(NamedTuple):
    """How an op looks at a tensor: what it reads of it, and how the factors of what it reads are arranged."""

    digits: list[list[Digit]]  # (dimensions,) of the tensor
    regroups: list[Regroup]  # in the order in which they are run


def relate(
    operator: Operator, access: Access, dimensions: Sequence[int], variables: Mapping[str, int], to: Axes
) -> None:
    """Link a tensor's dimensions with the variables that they are indexed by."""
    leaves = [
        not contains((full,), (got,))
        for got, full in zip(access.reach(operator.space), whole(access.shape), strict=True)
    ]
    for axis, index, is_left in zip(dimensions, access.index, leaves, strict=True):
        if index is None:
            continue
        terms = _terms(index, operator)
        if len(terms) == 1 and terms[0][1] == 1 and not (is_left and access.fill is not None):
            to.link(axis, variables[terms[0][0]], index.constant)
        elif terms and _is_radix(terms, index.constant, to.sizes[axis], operator):
            to.groups.append(((axis,), tuple(variables[name] for name, _ in terms)))
        elif terms:
            to.lock(axis)
            for name, _ in terms:
                to.lock(variables[name])


def relate_view(step: Step, before: Sequence[int], after: Sequence[int], to: Axes) -> None:
    """Link the dimensions of a view with those of what is looked at."""
    if isinstance(step, Reindexed):
        for axis, source, start in zip(after, step.source, step.start, strict=True):
            if source is not None:
                to.link(before[source], axis, start)
        return
    for ours, theirs in step.groups:
        if len(ours) == len(theirs) == 1:
            to.link(before[ours[0]], after[theirs[0]])
        else:
            to.groups.append((tuple(before[i] for i in ours), tuple(after[i] for i in theirs)))


def digits_of(
    operator: Operator, access: Access, dimensions: Sequence[int], names: Names, factors: Factors
) -> list[list[Digit]] | None:
    """(dimensions,) the factors of a tensor as an op reads it; None if the axes could not be taken apart alike."""
    found, number = list[list[Digit]](), 0
    for axis, index in zip(dimensions, access.index, strict=True):
        sizes = factors.of(axis)
        expressions = _expressions(operator, index, axis, names, factors)
        if expressions is None:
            return None
        origins = range(number, number + len(sizes))
        found.append([Digit(*each) for each in zip(sizes, expressions, origins, strict=True)])
        number += len(sizes)
    return found


def before_view(step: Step, looked: ViewedRead, before: Sequence[int], factors: Factors) -> ViewedRead | None:
    """How a tensor is looked at through one more view; None if the view shows a part of what is not taken apart."""
    digits, regroups = looked
    found = [[Digit(size, Affine(), None) for size in factors.of(axis)] for axis in before]
    if isinstance(step, Reindexed):
        for dimension, index in step.fixed:
            sizes = factors.of(before[dimension])
            fixed = zip(sizes, _digits(index, sizes), strict=True)
            found[dimension] = [Digit(size, Affine((), digit), None) for size, digit in fixed]
        for j, source in enumerate(step.source):
            if source is not None:
                is_part = step.before[source] != step.after[j]
                if is_part and any(digit.at is None for digit in digits[j]):
                    return None
                found[source] = _started(digits[j], before[source], step.start[j], factors)
        return ViewedRead(found, regroups)
    for ours, theirs in step.groups:
        after = [digit for j in theirs for digit in digits[j]]
        moving = [digit for digit in after if digit.size > 1]
        is_alike = [digit.size for digit in moving] == [
            digit.size for i in ours for digit in found[i] if digit.size > 1
        ]
        if not is_alike or any(digit.size == 1 and digit.at and digit.at != Affine() for digit in after):
            free = _free_origin(digits, regroups)
            for i in ours:
                found[i] = [Digit(d.size, None, free + k) if d.size > 1 else d for k, d in enumerate(found[i])]
                free += len(found[i])
            inputs = tuple(digit.origin for i in ours for digit in found[i] if digit.origin is not None)
            outputs = tuple((digit.origin, digit.at) for digit in after)
            regroups = [Regroup(inputs, tuple(digit.size for digit in after), outputs), *regroups]
            digits = [*digits, [Digit(1, None, free)]]  # so that these origins are taken
        else:
            for i in ours:
                found[i] = [moving.pop(0) if digit.size > 1 else digit for digit in found[i]]
    return ViewedRead(found, regroups)


def _free_origin(digits: Sequence[Sequence[Digit]], regroups: Sequence[Regroup]) -> int:
    """The first number that no factor has as its origin."""
    used = [digit.origin for each in digits for digit in each]
    used += [origin for regroup in regroups for origin in regroup.before]
    used += [origin for regroup in regroups for origin, _ in regroup.after]
    return max((origin for origin in used if origin is not None), default=-1) + 1


def refined(operator: Operator, names: Names) -> dict[str, object]:
    """What else of an operator names its variables: the fields with the new ones."""

    def each_of(some: frozenset[str]) -> frozenset[str]:
        return frozenset(new for name in some for new in names[name])

    return {
        "sizes": {new: size for each in names.values() for new, size in each.items()},
        "opaque": each_of(operator.opaque),
        "ordered": each_of(operator.ordered),
        "statistics": tuple(
            replace(each, index=tuple(new for name in each.index for new in names[name]))
            for each in operator.statistics
        ),
    }


def access_of(access: Access, digits: Sequence[Sequence[Digit]], names: Names) -> Access:
    """The access to a tensor whose dimensions are factors."""
    flat = [digit for each in digits for digit in each]
    return Access(
        tuple(digit.size for digit in flat),
        tuple(digit.at for digit in flat),
        access.fill,
        access.clipped,
        frozenset(new for name in access.apart for new in names[name]),
    )


def _terms(index: Affine, operator: Operator) -> list[tuple[str, int]]:
    """The terms that are not always 0, largest factor first."""
    return sorted(((name, f) for name, f in index.terms if operator.sizes[name] > 1), key=lambda term: -term[1])


def _is_radix(terms: Sequence[tuple[str, int]], start: int, size: int, operator: Operator) -> bool:
    """Whether an index counts through a dimension, as `size of member` group + member does."""
    within = 1
    for name, factor in reversed(terms):
        if factor != within:
            return False
        within *= operator.sizes[name]
    return start == 0 and within == size


def _expressions(
    operator: Operator, index: Affine | None, axis: int, names: Names, factors: Factors
) -> list[Affine | None] | None:
    sizes, stride = factors.of(axis), factors.stride(axis)
    if index is None:
        return [None] * len(sizes)
    terms = _terms(index, operator)
    if not terms:
        return [Affine((), digit) for digit in _digits(index.constant, sizes)]
    if len(sizes) == 1:
        if any(len(names[name]) > 1 for name, _ in terms):
            return None
        return [Affine.of(dict(terms), index.constant)]
    within = {new: size for name, _ in terms for new, size in names[name].items()}
    parts = list(within)
    if len(parts) != len(sizes) or (len(terms) > 1 and any(len(names[name]) > 1 for name, _ in terms)):
        return None
    first = Affine() if within[parts[0]] == 1 else variable(parts[0])
    return [first + index.constant // stride, *(variable(name) for name in parts[1:])]


def _digits(index: int, sizes: Sequence[int]) -> list[int]:
    """An index in a dimension as indices of its factors."""
    found = []
    for i in range(len(sizes)):
        within = prod(sizes[i + 1 :])
        found.append(index // within)
        index %= within
    return found


def _started(digits: Sequence[Digit], axis: int, start: int, factors: Factors) -> list[Digit]:
    """Factors that begin at an index of a larger dimension."""
    first, *others = digits
    sizes = factors.of(axis)
    moved = start // factors.stride(axis) if len(sizes) > 1 else start
    index = None if first.at is None else first.at + moved
    return [Digit(sizes[0], index, first.origin), *others]
