"""Padding with a constant: the result is the input, read from outside of it as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphs.notation.affine import variable
from graphs.notation.operator import Operator, tensor
from graphs.notation.signatures import Signature
from graphs.operators import Description
from graphs.operators._indices import all_of, argument, names, sizes

if TYPE_CHECKING:
    from torch import Tensor

    from graphs.notation.shard import Shard

KINDS = ("aten.constant_pad_nd",)
EXAMPLES = (
    "aten.constant_pad_nd(x(4, 6), [1, 2], 0.5)",
    "aten.constant_pad_nd(x(4, 6), [0, 1, 2, 0])",
    "aten.constant_pad_nd(x(4, 6), [-1, 2], -inf)",
)


def build() -> Description:
    """Of `constant_pad_nd`."""
    return Description(_operator, _run)


def _operator(signature: Signature) -> Operator | None:
    shape, index = signature.shape, [variable(name) for name in names(signature.shape)]
    around = argument(signature, 1)
    for i, before in enumerate(around[::2]):  # of the last dimension first
        index[len(shape) - 1 - i] = index[len(shape) - 1 - i] - before
    value = argument(signature, 2, 0.0)
    fill = float(value["float"] if isinstance(value, dict) else str(value))
    return Operator(sizes(shape), (tensor(signature.reads[0].shape, *index, fill=fill),), (all_of(shape),))


def _run(shard: Shard) -> Tensor:
    return shard.tensors[0]
