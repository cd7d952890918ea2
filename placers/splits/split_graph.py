"""Split graph: a step as operators in index notation and the tensors between them, of which each op is divided.

    variable            of what                                        its choices, along one axis of a mesh of devices
    an op's             ops that are tied: a forward op with its       the index variables of the operator, or none:
                        gradients, the time steps of a recurrent net   then every device computes all of it
    a tensor's layout   what is stored between steps, and, as the      its dimensions d0, d1, ..., or none:
                        rules have it, what several ops read           then every device holds all of it

Source: Tofu (Wang et al. 2019), where tensors have schemes and operators strategies; it ties what it calls coarsened.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from graphs.foundation.errors import InputError
from graphs.notation.operator import Operator, tensor

NONE = ""  # in place of an index: nothing is divided along an axis
UNTIED = -1


@dataclass(frozen=True)
class SplitTensor:
    """A tensor of a step."""

    name: str
    shape: tuple[int, ...]
    element_bytes: float = 4.0
    stored: bool = False  # a weight or an input: it is there before the step, in a layout that is chosen
    held_bytes: float = 0.0  # of memory that it takes in one piece, a weight with its gradient and optimizer state
    tied: int = UNTIED  # tensors with the same number have the same layout
    is_gradient: bool = False  # of weights: sums of it pass while the backward pass goes on
    as_made: bool = False  # no layout but that in which it is written, whoever reads it: a weight by its update


@dataclass(frozen=True, eq=False)
class SplitOp:
    """An operation of a step: an operator, and which tensors it reads and writes."""

    name: str
    operator: Operator
    reads: tuple[int, ...]  # a tensor for each of the operator's, -1 for one that it makes no use of
    writes: tuple[int, ...]  # likewise; a stored tensor is written in its layout
    seconds: float = 0.0  # undivided
    fixed_seconds: float = 0.0  # of these, what a part takes however small it is: a launch
    batch: str = ""  # the index of samples, if it has one
    as_updated: bool = False  # it is divided as the update whose new weights it brings: nothing is chosen, nor moved
    tied: int = UNTIED  # ops with the same number divide the same index


def is_replica(op: SplitOp, option: Sequence[str]) -> bool:
    """Whether an op is divided along its batch by every axis, as data parallelism does it."""
    return op.batch != NONE and set(option) == {op.batch}


@dataclass(frozen=True, eq=False)
class SplitGraph:
    """Operations and tensors. Raises InputError, naming the op, where an operator and a tensor do not fit."""

    name: str
    tensors: tuple[SplitTensor, ...]
    ops: tuple[SplitOp, ...]

    def __post_init__(self) -> None:
        for op in self.ops:
            for word, accesses, tensors in (
                ("reads", op.operator.reads, op.reads), ("writes", op.operator.writes, op.writes),
            ):  # fmt: skip
                if len(accesses) != len(tensors):
                    raise InputError(
                        f"op {op.name!r} {word} {len(tensors)} tensors, its operator {len(accesses)}; give -1 for one "
                        "that it makes no use of"
                    )
                for access, number in zip(accesses, tensors, strict=True):
                    if number >= 0 and self.tensors[number].shape != access.shape:
                        raise InputError(
                            f"op {op.name!r} {word} {self.tensors[number].name!r}, of shape "
                            f"{self.tensors[number].shape}, where its operator has {access.shape}"
                        )

    @cached_property
    def writers(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """(tensors,) the ops that write each tensor, and at which position; a weight's are those of its gradients."""
        return self._users([op.writes for op in self.ops])

    @cached_property
    def readers(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """(tensors,) the ops that read each tensor, and at which position."""
        return self._users([op.reads for op in self.ops])

    def _users(self, of_ops: list[tuple[int, ...]]) -> tuple[tuple[tuple[int, int], ...], ...]:
        found: list[list[tuple[int, int]]] = [[] for _ in self.tensors]
        for op, tensors in enumerate(of_ops):
            for place, number in enumerate(tensors):
                if number >= 0:
                    found[number].append((op, place))
        return tuple(tuple(several) for several in found)


@cache
def layout_operator(shape: tuple[int, ...]) -> Operator:
    """The operator that writes a tensor element by element: its strategies are the layouts of the tensor."""
    names = [f"d{i}" for i in range(len(shape))]
    return Operator(dict(zip(names, shape, strict=True)), (), (tensor(shape, *names),))
