"""Orders of passes: in which order each device runs the passes of its stages. An extension folder: one file, one order.

An order is data: of each rank of a pipeline the list of its passes. A rank is one place of the pipeline; it hosts one
stage or more, and each replica of it is a device. The stages of rank r, of P ranks, are

    r                    one stage per rank
    r, P + r, 2 P + r    several, interleaved
    r, 2 P - 1 - r       two, down and up again in the shape of a V

Where replicas of a stage take micro-batches in turns, and ranks have one stage each, every replica is a rank to the
order, and the passes of the first one are dealt out to all of them (`envs.expansion.pass_lists`).
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol, runtime_checkable

from graphs.foundation import by_name
from graphs.foundation.errors import InputError, UserCodeError
from graphs.foundation.user_code import user_code


class PassKind(Enum):
    """What of a stage a pass runs; the value is how drawings show it."""

    FORWARD = "F"
    BACKWARD = "B"  # the whole backward pass
    INPUT_GRADIENT = "I"  # that part of it which earlier stages wait for
    WEIGHT_GRADIENT = "W"  # the rest, which only updates wait for


class Pass(NamedTuple):
    """A part of a stage for one micro-batch."""

    stage: int
    kind: PassKind
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.kind.value}{self.micro_batch}"


Ranks = tuple[tuple[int, ...], ...]  # of each rank the stages that it hosts, in ascending order
Passes = tuple[tuple[Pass, ...], ...]  # of each rank its passes, in the order in which they run


class PassOrder(Protocol):
    """Anything that orders the passes of a pipeline."""

    def passes(self, ranks: Ranks, micro_batches: int) -> Passes:
        """Of each rank all passes of its stages, in the order in which they run.

        Every stage has a FORWARD pass for each micro-batch, and a BACKWARD pass or both of its parts. Raises InputError
        for ranks or a number of micro-batches that the order is not made for.
        """
        ...


@runtime_checkable
class InLessMemory(Protocol):
    """An order of two stages on each device that keeps to so many micro-batches in flight."""

    def held(self, ranks: int) -> int:
        """The most micro-batches whose activations each of `ranks` devices holds, of both stages."""
        ...


def takes(order: PassOrder, ranks: Ranks, micro_batches: int) -> bool:
    """Whether an order runs as many micro-batches through these stages. Raises UserCodeError as its code raises."""
    try:
        order.passes(ranks, micro_batches)
    except UserCodeError:
        raise
    except InputError:
        return False
    return True


@dataclass(frozen=True)
class OwnPassOrder(by_name.OwnExtension[PassOrder]):
    """An order of passes from a user's file."""

    folder = "envs.pass_orders"

    def passes(self, ranks: Ranks, micro_batches: int) -> Passes:
        """What the user's order says. Raises UserCodeError for what its code raises."""
        with user_code(self.file):
            return self.built.passes(ranks, micro_batches)


def checked(spec: str, built: Any) -> PassOrder:
    """What `build` of a user's file or of another package returned. Raises InputError for what is no order."""
    order: PassOrder = OwnPassOrder.checked(spec, built, "an order of passes", "passes")
    return order


def one_stage_each(ranks: Ranks, who: str) -> None:
    """Raise InputError unless each rank hosts one stage, in ascending order; `who` is the order that asks."""
    if ranks != tuple((stage,) for stage in range(len(ranks))):
        raise InputError(f"the order {who!r} runs one stage on each device, in their order; got stages {list(ranks)}")
