"""ReplayedPass: a forward pass of a replayed step and its backward pass, in memory of their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from envs.placed_models.side_streams import PendingCopy
from envs.replay.ordered_ops import OrderedOp
from envs.replay.stretches import Stretch
from envs.running.op_by_op import tape
from graphs.op_graph import Phase

Turn = OrderedOp | Stretch


@dataclass(eq=False)
class ReplayedPass:
    """What a forward pass has made, until its backward pass has run."""

    slots: list[tape.Slots]  # of each place
    turns: Mapping[Phase, Sequence[Turn]]  # what is computed, in the plan's order
    coming: dict[Hashable, list[PendingCopy | Tensor | None]] = field(default_factory=dict)  # copies under way, by key
    is_over: bool = False

    @property
    def has_weights(self) -> bool:
        """Whether weights are in their slots from an earlier pass."""
        return False

    def give(self, place: int, tensors: Mapping[int, Tensor], changed: Collection[int]) -> None:
        """Give slots what is there before a step; the user's own is `changed` before the backward pass reads it."""
        for slot, tensor in tensors.items():
            self.slots[place][slot] = tensor.clone() if slot in changed else tensor

    def put(self, place: int, slot: int, tensor: Tensor | None) -> None:
        """Give a slot what was made elsewhere."""
        self.slots[place][slot] = tensor

    def compute(self, turn: Turn) -> None:
        """Compute what has its turn, whose inputs are there."""
        turn.compute(self.slots[turn.place])

    def returned(self, tensor: Tensor) -> Tensor:
        """What the user gets of a tensor in a slot."""
        return tensor

    def check(self, gradients: Sequence[Tensor | None]) -> None:
        """Raise an error if the backward pass cannot run with such gradients of outputs."""

    def fail(self) -> None:
        """It will not come to its end."""

    def end(self) -> None:
        """Its backward pass has run."""
        self.slots.clear()
        self.is_over = True


def copy_all(there: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    """Copy tensors to where others are, those of a device and a type with one call."""
    alike = defaultdict[Hashable, list[tuple[Tensor, Tensor]]](list)
    for old, new in zip(there, tensors, strict=True):
        alike[old.device, new.device, old.dtype].append((old, new))
    for pairs in alike.values():
        torch._foreach_copy_([old for old, _ in pairs], [new for _, new in pairs])
