"""Constants: tensors that are made of nothing; each part makes its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphs.notation.operator import Operator
from graphs.notation.signatures import Signature
from graphs.operators import Description
from graphs.operators._indices import all_of, sizes

if TYPE_CHECKING:
    from torch import Tensor

    from graphs.notation.shard import Shard

KINDS = ("aten.arange", "aten.full", "aten.ones", "aten.zeros", "aten.scalar_tensor")
EXAMPLES = (
    "aten.arange(6)",
    "aten.arange(2, 12, 2)",
    "aten.full([4, 6], 2.5)",
    "aten.ones([4, 6])",
    "aten.zeros([4, 6])",
    "aten.scalar_tensor(3.0)",
)

_NUMBERS = "aten.arange"


def build() -> Description:
    """Of `arange`, `full`, `ones`, `zeros` and `scalar_tensor`."""
    return Description(_operator, _run)


def _operator(signature: Signature) -> Operator | None:
    ordered = frozenset({"d0"} if signature.function == _NUMBERS else ())  # a value depends on where it is
    return Operator(sizes(signature.shape), (), (all_of(signature.shape),), ordered=ordered)


def _run(shard: Shard) -> Tensor:
    if shard.signature.function == _NUMBERS:
        own = shard.space["d0"]
        return shard.call()[own.low : own.high + 1]
    size = {} if shard.signature.function == "aten.scalar_tensor" else {0: [r.size for r in shard.space.values()]}
    return shard.call(size)
