"""Indices that many descriptions have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphs.notation.affine import Affine, variable
from graphs.notation.operator import Access
from graphs.notation.signatures import READ, Shape, Signature

if TYPE_CHECKING:
    from graphs.notation.shard import Shard


def names(shape: Shape) -> list[str]:
    """A variable for each dimension: d0, d1, and so on."""
    return [f"d{i}" for i in range(len(shape))]


def sizes(shape: Shape) -> dict[str, int]:
    """The sizes of these variables."""
    return dict(zip(names(shape), shape, strict=True))


def all_of(shape: Shape) -> Access:
    """A tensor whose dimensions are d0, d1, and so on."""
    return Access(shape, tuple(map(variable, names(shape))))


def broadcast(shape: Shape, variables: Sequence[str], to: Shape, apart: frozenset[str] = frozenset()) -> Access:
    """A tensor that is read at the last of the variables, whose sizes are `to`; a dimension of 1 is read at 0."""
    last = list(zip(variables, to, strict=True))[len(to) - len(shape) :]
    index = [variable(name) if size == whole else Affine() for size, (name, whole) in zip(shape, last, strict=True)]
    return Access(shape, tuple(index), apart=apart)


def argument(signature: Signature, position: int, default: Any = None) -> Any:
    """An argument by its position; `default` where it was left out."""
    return signature.arguments[position] if position < len(signature.arguments) else default


def numbers(value: Any, count: int, default: int) -> tuple[int, ...]:
    """An argument that gives one number per dimension, one for all dimensions, or none."""
    given = list(value) if isinstance(value, (tuple, list)) else [value]
    given = given if given and given[0] is not None else [default]
    return tuple(int(each) for each in (given * count if len(given) == 1 else given))


def is_read(value: Any) -> bool:
    """Whether an argument is a tensor."""
    return isinstance(value, dict) and READ in value


def positive(dimension: int, dimensions: int) -> int:
    """A dimension, counted from the first one."""
    return dimension % max(dimensions, 1)


def alike(shards: Sequence[Shard], variables: Sequence[str]) -> list[list[int]]:
    """The positions of shards in groups whose ranges of these variables are the same: they share statistics."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, shard in enumerate(shards):
        groups.setdefault(tuple(shard.ranges[name] for name in variables), []).append(i)
    return list(groups.values())
