"""Copies: a tensor goes to another place, its gradient comes back, and both can be counted.

Between places that one device stands for a copy is a clone, so that what crosses is the same, and is counted the same,
as between devices. Between accelerators it may run in side streams (`side_streams`). Then the gradient comes back in
two nodes of autograd's graph:

    x on 0       ── departure, on 0 ── copy, on 1 ──     y on 1
    gradient     ── waits for it    ── sends it   ──     gradient

The first says that it was made together with x, so that it is issued right before what reads the gradient: all else
that its device is to compute first is issued before, and does not wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from envs.placed_models.autograd_functions import applied
from envs.placed_models.places import Places
from envs.placed_models.side_streams import PendingCopy, SideStreams
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


_Way = tuple[int, int, CopyOf, Call | None]  # from where to where a tensor goes, and what it is


class Copier:
    """Makes copies between places."""

    def __init__(self, places: Places, side: SideStreams | None = None) -> None:
        """`side` has the streams of copies between accelerators; without it they are barriers of both."""
        self.places, self.side = places, side
        self.made: list[Copy] | None = None  # since they are counted

    def copy(self, tensor: Tensor, source: int, destination: int, of: CopyOf, call: Call | None) -> Tensor:
        """The tensor in another place; its gradient will be copied back to where it came from."""
        aside = self.side if self.side is not None and self.side.join(source, destination) else None
        if (self.made is None and aside is None) or torch._C._are_functorch_transforms_active():
            return self.moved(tensor, source, destination, of, call)  # whose gradient is copied back by autograd
        returned = None
        if aside is not None and torch.is_grad_enabled() and tensor.requires_grad:
            returned = _Returned()
            tensor = _departed(tensor, aside, returned)
        return applied(_Copied, tensor, self, (source, destination, of, call), returned)

    def moved(self, tensor: Tensor, source: int, destination: int, of: CopyOf, call: Call | None) -> Tensor:
        """The data alone."""
        if self.runs_aside(tensor, source, destination):
            assert self.side is not None
            return self.side.receive(self.sent(tensor, source, destination, of, call))
        self._count(tensor, source, destination, of, call)
        device = self.places.devices[destination]
        if tensor.device == device:
            return tensor.clone()
        # whoever reads from a processor's memory does not wait for the copy
        return tensor.to(device, non_blocking=device.type != "cpu")

    def settle(self, place: int) -> None:
        """Let what a place computes from now on wait until no copy of its tensors is under way.

        Called before one may be changed in place.
        """
        if self.side is not None:
            self.side.settle(place)

    def settle_all(self) -> None:
        """The same of all places."""
        if self.side is not None:
            self.side.settle_all()

    def runs_aside(self, tensor: Tensor, source: int, destination: int) -> bool:
        """Whether a tensor is copied in side streams."""
        return self.side is not None and tensor.layout is torch.strided and self.side.join(source, destination)

    def sent(self, tensor: Tensor, source: int, destination: int, of: CopyOf, call: Call | None) -> PendingCopy:
        """The data alone, which runs aside and is still on its way."""
        assert self.side is not None
        self._count(tensor, source, destination, of, call)
        return self.side.send(tensor, source, destination)

    def _count(self, tensor: Tensor, source: int, destination: int, of: CopyOf, call: Call | None) -> None:
        if self.made is not None:
            self.made.append(Copy(of, source, destination, _size(tensor), call))


# Gradients that have been sent, by the backward pass that did: each is received by the node after the one that sent it.
_Returned = dict[int, PendingCopy]


class _Copied(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, copier: Copier, way: _Way, returned: _Returned | None) -> Tensor:
        ctx.set_materialize_grads(False)
        source, destination, of, call = way
        ctx.copier, ctx.returned, ctx.back = copier, returned, (destination, source, CopyOf.GRADIENT, call)
        return copier.moved(tensor, source, destination, of, call)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        [gradient] = gradients
        copier, back, returned = ctx.copier, ctx.back, ctx.returned
        if gradient is None:
            return None, None, None, None
        if torch.is_grad_enabled():
            return copier.copy(gradient, *back), None, None, None
        if returned is None or not copier.runs_aside(gradient, *back[:2]):
            return copier.moved(gradient, *back), None, None, None
        sent = returned[torch._C._current_graph_task_id()] = copier.sent(gradient, *back)
        copier.side.refer(gradient, sent.event)
        return None, None, None, None


class _Departed(Function):
    """The tensor itself; where its gradient comes back."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, side: SideStreams, returned: _Returned) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.side, ctx.returned = side, returned
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        [gradient] = gradients
        sent = ctx.returned.pop(torch._C._current_graph_task_id(), None)
        return gradient if sent is None else ctx.side.receive(sent), None, None


def _departed(tensor: Tensor, side: SideStreams, returned: _Returned) -> Tensor:
    made_by = tensor.grad_fn
    departed = applied(_Departed, tensor, side, returned)
    if made_by is not None and departed.grad_fn is not None:
        departed.grad_fn._set_sequence_nr(made_by._sequence_nr())  # type: ignore[attr-defined]
    return departed


def _size(tensor: Tensor) -> int:
    """Bytes that are sent."""
    if tensor.is_sparse:
        parts = tensor._indices(), tensor._values()
        return sum(part.numel() * part.element_size() for part in parts)
    return tensor.numel() * tensor.element_size()
