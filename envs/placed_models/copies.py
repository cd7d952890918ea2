"""Copies: a tensor goes to another place, its gradient comes back, and both can be counted.

Between places that one device stands for a copy is a clone, so that what crosses is the same, and is counted the same,
as between devices.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from envs.placed_models.places import Places
from graphs.op_graph import Call


class CopyOf(Enum):
    """What is copied."""

    OUTPUT = "output"  # of a call
    WEIGHT = "weight"  # to a user of it elsewhere
    GRADIENT = "gradient"  # of either, back
    GIVEN = "given"  # an input, a buffer or a constant: these are taken to be on every device when a plan is simulated


@dataclass(frozen=True)
class Copy:
    """One copy that was made."""

    of: CopyOf
    source: int  # place
    destination: int  # place
    size: int  # bytes
    call: Call | None  # whose output it is, or the gradient of whose output


class Copier:
    """Makes copies between places."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.made: list[Copy] | None = None  # since they are counted

    def copy(self, tensor: Tensor, source: int, destination: int, of: CopyOf, call: Call | None) -> Tensor:
        """The tensor in another place; its gradient will be copied back to where it came from."""
        if torch._C._are_functorch_transforms_active():  # in which copies have a gradient of their own, uncounted
            return self.moved(tensor, source, destination, of, call)
        copied: Tensor = _Copied.apply(tensor, self, source, destination, of, call)  # type: ignore[no-untyped-call]
        return copied

    def moved(self, tensor: Tensor, source: int, destination: int, of: CopyOf, call: Call | None) -> Tensor:
        """The data alone."""
        if self.made is not None:
            self.made.append(Copy(of, source, destination, _size(tensor), call))
        device = self.places.devices[destination]
        if tensor.device == device:
            return tensor.clone()
        # whoever reads from a processor's memory does not wait for the copy
        return tensor.to(device, non_blocking=device.type != "cpu")


class _Copied(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, copier: Copier, source: int, destination: int, of: CopyOf, call: Call | None
    ) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.copier, ctx.back = copier, (destination, source, CopyOf.GRADIENT, call)
        return copier.moved(tensor, source, destination, of, call)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        [gradient] = gradients
        back = None if gradient is None else ctx.copier.copy(gradient, *ctx.back)
        return back, None, None, None, None, None


def _size(tensor: Tensor) -> int:
    """Bytes that are sent."""
    if tensor.is_sparse:
        parts = tensor._indices(), tensor._values()
        return sum(part.numel() * part.element_size() for part in parts)
    return tensor.numel() * tensor.element_size()
