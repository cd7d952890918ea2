"""Tape: how one process computes its ops. Each is cut off from the others, so that its gradients are its own ops.

    forward        the op's nodes, on tensors that do not know how they were made; what autograd saves is kept
    X.grad         the gradients of what X reads, from the sum of those of what X has made
    X.grad_weight  those of X's weights, from the same
    X.update       Adam, on the weights that end there

Every op is a function of the *slots* of the process: a list of tensors, whose places are known before the first step,
so that a step is little more than the calls of PyTorch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Variable
from torch.autograd.graph import GradientEdge, get_gradient_edge

from envs.running.adam import AdamUpdate

Slots = list[Any]  # mostly tensors; None where there is nothing now
Compute = Callable[[Slots], None]


@dataclass(frozen=True)
class Arriving:
    """The gradients of what an op has made."""

    kept: int  # the slot of what the forward op has kept
    parts: tuple[tuple[int, ...], ...]  # of each tensor that it has kept, the slots of what is added up
    sums: int  # the slot for what is made of these, which two ops need

    def outputs_and_gradients(self, slots: Slots) -> tuple[list[GradientEdge], list[Tensor]]:
        """What autograd begins with: the tensors that have a gradient, and these."""
        found: tuple[list[GradientEdge], list[Tensor]] | None = slots[self.sums]
        if found is not None:
            return found
        outputs, gradients = list[GradientEdge](), list[Tensor]()
        for output, parts in zip(slots[self.kept][0], self.parts, strict=True):
            gradient: Tensor | None = None
            for part in parts:
                arrived = slots[part]
                if arrived is not None:
                    gradient = arrived if gradient is None else gradient + arrived
            if gradient is not None and output is not None:
                outputs.append(output)
                gradients.append(gradient)
        slots[self.sums] = outputs, gradients
        return outputs, gradients


def gradients_of(
    outputs: Sequence[GradientEdge], gradients: Sequence[Tensor], inputs: Sequence[Tensor], *, keep: bool
) -> Sequence[Tensor | None]:
    """As `torch.autograd.grad` with `allow_unused`, by what that calls, which takes 13 us less; `keep` the graph."""
    if not outputs or not inputs:
        return [None] * len(inputs)
    found: Sequence[Tensor | None] = Variable._execution_engine.run_backward(
        tuple(outputs), tuple(gradients), keep, False, tuple(inputs), allow_unreachable=True, accumulate_grad=False
    )
    return found


def forward(
    function: Callable[..., Sequence[Tensor]],
    takes: Sequence[int],
    cut: Sequence[int],
    gives: Sequence[tuple[int, int]],
    keeps: Sequence[int],
    kept: int,
    *,
    drops: bool = True,
) -> Compute:
    """A forward op, which takes tensors from slots, and puts them into slots by (position, slot).

    `cut` are the positions of what it takes whose gradients are wanted, `keeps` of what it makes whose will arrive.
    Memory of what is taken is dropped unless autograd has saved it; a custom function may have it without autograd.
    """

    def compute(slots: Slots) -> None:
        taken = [slots[slot] for slot in takes]
        for position in cut:
            taken[position] = taken[position].detach().requires_grad_()
        made = function(*taken)
        for position, slot in gives:
            slots[slot] = made[position].detach()
        if not keeps:
            return
        edges = [_edge(made[position]) for position in keeps]
        del made
        leaves = [taken[position] for position in cut]
        for leaf in leaves if drops else ():
            if leaf._use_count() <= _uses_of_unsaved():
                leaf.data = _nothing(leaf.dtype, leaf.device)
        slots[kept] = edges, leaves

    return compute


def grad(arriving: Arriving, gradients: Sequence[int], *, keep: bool) -> Compute:
    """The gradients of what an op has cut off, into slots; `keep` what autograd has saved if another op needs it."""

    def compute(slots: Slots) -> None:
        outputs, given = arriving.outputs_and_gradients(slots)
        found = gradients_of(outputs, given, slots[arriving.kept][1], keep=keep)
        for slot, gradient in zip(gradients, found, strict=True):
            slots[slot] = gradient

    return compute


def grad_weight(
    arriving: Arriving, weights: Sequence[int], sums: Sequence[int], earlier: Sequence[int], *, keep: bool
) -> Compute:
    """Those of weights, each added to an earlier sum, whose slot is -1 if there is none."""

    def compute(slots: Slots) -> None:
        outputs, given = arriving.outputs_and_gradients(slots)
        found = gradients_of(outputs, given, [slots[slot] for slot in weights], keep=keep)
        for slot, before, gradient in zip(sums, earlier, found, strict=True):
            slots[slot] = gradient if before < 0 else _added(slots[before], gradient)

    return compute


def update(adam: AdamUpdate, weights: Sequence[int], sums: Sequence[int], new: Sequence[int]) -> Compute:
    """New values of weights: in place or, where `new` is another slot, in memory of their own."""
    apart = [(old, slot) for old, slot in zip(weights, new, strict=True) if old != slot]

    def compute(slots: Slots) -> None:
        for old, slot in apart:
            slots[slot] = slots[old].detach().clone().requires_grad_()
        with torch.no_grad():
            adam([slots[slot] for slot in new], [slots[slot] for slot in sums])

    return compute


def nothing(slots: Slots) -> None:
    """An op that waits for others, and is done then, as a refresh is, or what a checkpoint computes again."""
    del slots


def _edge(tensor: Tensor) -> GradientEdge | None:
    """Where autograd begins for a tensor, whose memory it does not hold; None for one without a gradient."""
    if tensor.grad_fn is not None:
        return GradientEdge(tensor.grad_fn, tensor.output_nr)
    return get_gradient_edge(tensor) if tensor.requires_grad else None


def _added(total: Tensor | None, gradient: Tensor | None) -> Tensor | None:
    if total is None or gradient is None:
        return gradient if total is None else total
    return gradient + total if total.is_sparse else total + gradient  # to a dense one a sparse can be added


@cache
def _uses_of_unsaved() -> int:
    """How often a tensor is held that a function has read, and autograd has not saved.

    Autograd then holds it for its shape alone. What it has saved it holds once more, and that must stay.
    """
    read = torch.empty(1).requires_grad_()
    made = read + 1
    uses: int = read._use_count()  # type: ignore[attr-defined]
    del made
    return uses


@cache
def _nothing(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty(0, dtype=dtype, device=device)
