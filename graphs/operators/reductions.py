"""Sums and means over some dimensions, or all of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from graphs.notation.affine import Affine, variable
from graphs.notation.operator import Access, Operator
from graphs.notation.signatures import Signature
from graphs.operators import Description
from graphs.operators._indices import all_of, argument, names, positive, sizes

if TYPE_CHECKING:
    from torch import Tensor

    from graphs.notation.shard import Shard

KINDS = ("aten.sum", "aten.mean")
EXAMPLES = (
    "aten.sum(x(4, 6, 8))",
    "aten.sum(x(4, 6, 8), [1])",
    "aten.sum(x(4, 6, 8), [0, -1], True)",
    "aten.mean(x(4, 6))",
    "aten.mean(x(4, 6), [0])",
    "aten.mean(x(4, 6), [-1], True)",
    "aten.sum(x())",
)


def build() -> Description:
    """Of `sum` and `mean`."""
    return Description(_operator, _run)


def _operator(signature: Signature) -> Operator | None:
    shape, over = signature.reads[0].shape, _over(signature)
    keeps = len(signature.shape) == len(shape)
    index = [Affine() if i in over else variable(name) for i, name in enumerate(names(shape)) if keeps or i not in over]
    return Operator(sizes(shape), (all_of(shape),), (Access(signature.shape, tuple(index)),))


def _run(shard: Shard) -> Tensor:
    signature, over = shard.signature, _over(shard.signature)
    shape = signature.reads[0].shape
    keeps = len(signature.shape) == len(shape)
    total = shard.tensors[0].sum(over, keepdim=keeps) if over else shard.tensors[0]
    return total / math.prod(shape[i] for i in over) if signature.function == "aten.mean" else total


def _over(signature: Signature) -> list[int]:
    """The dimensions that are summed up: all, if none are given."""
    shape, given = signature.reads[0].shape, argument(signature, 1)
    chosen = list(given) if isinstance(given, (tuple, list)) else [] if given is None else [given]
    return sorted(positive(each, len(shape)) for each in chosen) if chosen else list(range(len(shape)))
