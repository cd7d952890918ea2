"""Backward: what the parts of a gradient make of their slices, by PyTorch's autograd of the forward operation.

A part has what the backward op reads (`graphs.descriptions.descriptions`), and no more. In place of the rest are
numbers that are none, NaN, so that a gradient that needs what was not read is none either. Where autograd keeps an
output in place of what it was made of, an input is put in that has this output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphs.descriptions.factored import FactoredOp
from graphs.notation.operator import Space
from graphs.notation.ranges import shape_of
from tests.oracle.sharded.running import run_factored

# What has this output: each is the inverse of a function of one tensor, or is as good.
_INPUT_OF: dict[str, Callable[[Tensor], Tensor]] = {
    "aten.exp": torch.log, "aten.expm1": torch.log1p, "aten.log_softmax": torch.clone, "aten._log_softmax": torch.clone,
    "aten.reciprocal": torch.reciprocal, "aten.relu": torch.clone, "aten.rsqrt": lambda y: y**-2,
    "aten.sigmoid": torch.logit, "aten.softmax": torch.log, "aten._softmax": torch.log, "aten.sqrt": torch.square,
    "aten.tan": torch.atan, "aten.tanh": torch.atanh,
}  # fmt: skip


def run_gradients(
    op: FactoredOp,
    spaces: Sequence[Space],
    reads: Sequence[Sequence[Tensor | None]],
    outputs: Sequence[Tensor | None],
    arriving: Sequence[Tensor],
    of: Sequence[int],
) -> list[list[Tensor]]:
    """(spaces, of) the gradients that parts of an op make for the reads at some positions, by factors.

    Of each part are given the slices of what the op reads, (spaces, reads), and of its output, (spaces,), or None for
    what is not there; `arriving`, (spaces,), are the gradients of its output. The parts exchange statistics.
    """
    leaves = []
    for space, own, output in zip(spaces, reads, outputs, strict=True):
        known = list(own)
        if output is not None and len(known) == 1 and known[0] is None:
            known[0] = _INPUT_OF[op.signature.function](output)
        leaves.append([_leaf(op, k, space, each, asked=k in of) for k, each in enumerate(known)])
    with torch.enable_grad():
        made = run_factored(op, spaces, leaves)
    asked = [part[k] for part in leaves for k in of]
    found = torch.autograd.grad(made, asked, list(arriving), allow_unused=True)
    each = [torch.zeros_like(leaf) if one is None else one for leaf, one in zip(asked, found, strict=True)]
    return [each[i * len(of) : (i + 1) * len(of)] for i in range(len(spaces))]


def _leaf(op: FactoredOp, read: int, space: Space, given: Tensor | None, *, asked: bool) -> Tensor:
    """A slice of what is read, or something in place of it, of which a gradient may be asked."""
    if given is None:
        dtype = getattr(torch, op.signature.reads[read].dtype)
        nothing = torch.nan if dtype.is_floating_point else 0
        given = torch.full(shape_of(op.operator.reads[read].region(space)), nothing, dtype=dtype)
    return given.detach().clone().requires_grad_(asked)
