"""Losses element by element, summed or averaged over all of them: y = sum over i and j of f(x[i, j], target[i, j])."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from graphs.notation.operator import Operator, tensor
from graphs.notation.signatures import Signature
from graphs.operators import Description
from graphs.operators._indices import all_of, argument, broadcast, names, sizes

if TYPE_CHECKING:
    from torch import Tensor

    from graphs.notation.shard import Shard

KINDS = (
    "aten.binary_cross_entropy_with_logits", "aten.huber_loss", "aten.mse_loss", "aten.smooth_l1_loss",
    "aten.soft_margin_loss",
)  # fmt: skip
EXAMPLES = (
    "aten.binary_cross_entropy_with_logits(x(4, 6), c(4, 6))",
    "aten.binary_cross_entropy_with_logits(x(4, 6), c(4, 6), c(4, 6), c(6))",
    "aten.huber_loss(x(4, 6), x(4, 6), 1, 0.5)",
    "aten.mse_loss(x(4, 6), x(4, 6))",
    "aten.mse_loss(x(4, 6), x(4, 6), 2)",
    "aten.mse_loss(x(4, 6), c(4, 6), 0)",
    "aten.smooth_l1_loss(x(4, 6), x(4, 6), 1, 0.5)",
    "aten.soft_margin_loss(x(4, 6), c(4, 6))",
)

_NONE, _MEAN, _SUM = 0, 1, 2
_WEIGHTED = "aten.binary_cross_entropy_with_logits"  # by two further tensors, after which comes the reduction


def build() -> Description:
    """Of squares, absolute values and logarithms of differences from a target."""
    return Description(_operator, _run)


def _operator(signature: Signature) -> Operator | None:
    shape = signature.reads[0].shape
    if signature.reads[1].shape != shape:  # of another shape they are repeated, and so is the result
        return None
    reads = tuple(broadcast(read.shape, names(shape), shape) for read in signature.reads)
    return Operator(sizes(shape), reads, (all_of(shape) if _how(signature) == _NONE else tensor(()),))


def _run(shard: Shard) -> Tensor:
    signature, how = shard.signature, _how(shard.signature)
    total = shard.call({_position(signature): _SUM if how == _MEAN else how})
    return total / math.prod(signature.reads[0].shape) if how == _MEAN else total


def _position(signature: Signature) -> int:
    """Which argument says how the losses are reduced."""
    return 4 if signature.function == _WEIGHTED else 2


def _how(signature: Signature) -> int:
    given: int = argument(signature, _position(signature), _MEAN)
    return given
