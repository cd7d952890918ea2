"""Operator: what an operation reads and writes, in index notation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from graphs.foundation.errors import InputError
from graphs.notation.affine import Affine, variable
from graphs.notation.ranges import Box, Range, contains, whole

STATISTIC_BYTES = 4.0

Space = Mapping[str, Range]  # a part of the iteration space of an operator: of each index variable a range


@dataclass(frozen=True)
class Access:
    """The elements of one tensor that belong to each point of the iteration space."""

    shape: tuple[int, ...]
    index: tuple[Affine | None, ...]  # per dimension; None: all of it, wherever one is
    fill: float | None = None  # what is read outside of the tensor; what would be written there is dropped
    clipped: bool = False  # outside of the tensor, the index belongs to another one, as in a concatenation
    apart: frozenset[str] = frozenset()  # reductions that the tensor is not part of, as a bias; it is added once

    @property
    def variables(self) -> frozenset[str]:
        """The variables that its index depends on."""
        return frozenset(name for each in self.index if each is not None for name in each.variables)

    def reach(self, space: Space) -> Box:
        """The box that a part of the iteration space touches, be it within the tensor or outside of it."""
        every = whole(self.shape)
        return tuple(full if each is None else each.range(space) for each, full in zip(self.index, every, strict=True))

    def region(self, space: Space) -> Box:
        """The box of the tensor that belongs to a part of the iteration space."""
        return tuple(got.within(full) for got, full in zip(self.reach(space), whole(self.shape), strict=True))

    def __str__(self) -> str:
        return f"[{', '.join(':' if each is None else str(each) for each in self.index)}]"


@dataclass(frozen=True)
class Statistic:
    """Numbers that an operator computes on its way, reduced over variables that are not in `index`.

    A softmax needs of each row its largest value and the sum of its exponentials. If a variable that they are reduced
    over is divided, the parts add up theirs while they run, and each goes on with the total. A number of them takes
    `STATISTIC_BYTES`: they are accumulated in single precision, whatever they are of.
    """

    index: tuple[str, ...]  # the variables that it has one value for each of
    forward: int = 1  # how many such tensors the operator adds up
    backward: int = 1  # how many its gradient does


@dataclass(frozen=True, eq=False)
class Operator:
    """An operation in index notation: for all values of its variables, it combines what it reads into what it writes.

    Where several points of the iteration space write the same element, they are combined by `reducer`. Raises
    InputError for an index with an unknown variable, with another number of dimensions than its tensor, or that
    leaves it although nothing fills it.
    """

    sizes: Mapping[str, int]  # of each index variable: it runs from 0 to this, exclusive
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]  # several where an operation has several results, as a gradient has
    reducer: str = "sum"  # or "max", "min", "prod"
    opaque: frozenset[str] = frozenset()  # variables that cannot be divided, as the order of a sort
    statistics: tuple[Statistic, ...] = ()
    ordered: frozenset[str] = frozenset()  # variables that are not taken apart into factors

    def __post_init__(self) -> None:
        for access in (*self.reads, *self.writes):
            if len(access.index) != len(access.shape):
                raise InputError(f"the index {access} has {len(access.index)} dimensions; its tensor {access.shape}")
        used = frozenset[str]().union(*(access.variables for access in (*self.reads, *self.writes)))
        used |= self.opaque.union(*(statistic.index for statistic in self.statistics))
        if unknown := used - self.sizes.keys():
            raise InputError(f"no size is given for the index variables {', '.join(sorted(unknown))}")
        for access in (*self.reads, *self.writes):
            if (
                access.fill is None
                and not access.clipped
                and not contains(whole(access.shape), access.reach(self.space))
            ):
                raise InputError(f"the index {access} leaves its tensor, of shape {access.shape}, and nothing fills it")

    @cached_property
    def space(self) -> dict[str, Range]:
        """The whole iteration space."""
        return {name: Range(0, size - 1) for name, size in self.sizes.items()}

    @cached_property
    def reduced(self) -> frozenset[str]:
        """The variables over which all results are reduced."""
        return frozenset(self.sizes) - frozenset[str]().union(*(access.variables for access in self.writes))

    @property
    def is_number(self) -> bool:
        """Whether all that it makes are single numbers, as a loss: parts go on with their own, and exchange nothing."""
        return all(math.prod(access.shape) == 1 for access in self.writes)

    @property
    def points(self) -> int:
        """How many points the iteration space has; a product costs 2 FLOP at each."""
        return math.prod(self.sizes.values())

    def part(self, **ranges: Range) -> dict[str, Range]:
        """The part of the iteration space where these variables are in these ranges."""
        return {**self.space, **ranges}

    def exchanged(self, divided: str) -> int:
        """Elements of the statistics that parts add up if a variable is divided; 0 if none is reduced over it."""
        return sum(
            math.prod(self.sizes[name] for name in statistic.index) * statistic.forward
            for statistic in self.statistics
            if divided not in statistic.index
        )


def tensor(shape: Sequence[int], *index: str | Affine | None, fill: float | None = None) -> Access:
    """An access by names of variables and expressions: `tensor((8, 4), "n", variable("h") * 2)`."""
    return Access(tuple(shape), tuple(variable(each) if isinstance(each, str) else each for each in index), fill)
