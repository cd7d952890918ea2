"""Softmax and its logarithm: a row's largest value and the sum of its exponentials are statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphs.notation.operator import Operator, Statistic
from graphs.notation.signatures import Signature
from graphs.operators import Description
from graphs.operators._indices import alike, all_of, argument, names, positive, sizes

if TYPE_CHECKING:
    from torch import Tensor

    from graphs.notation.shard import Shard

KINDS = ("aten._softmax", "aten._log_softmax")
EXAMPLES = (
    "aten._softmax(x(4, 6, 8), -1, False)",
    "aten._softmax(x(4, 6, 8), 1, False)",
    "aten._log_softmax(x(6, 8), 1, False)",
)


def build() -> Description:
    """Of `_softmax` and `_log_softmax`."""
    return Description(_operator, together=_together)


def _operator(signature: Signature) -> Operator | None:
    shape = signature.shape
    rows = all_of(shape)
    return Operator(sizes(shape), (rows,), (rows,), statistics=(Statistic(_others(signature), 2, 1),))


def _together(shards: Sequence[Shard]) -> list[Tensor]:
    signature = shards[0].signature
    dimension = positive(argument(signature, 1), len(signature.shape))
    made: dict[int, Tensor] = {}
    for members in alike(shards, list(_others(signature))):
        rows: list[Any] = [shards[i].tensors[0] for i in members]
        largest = rows[0].amax(dimension, keepdim=True)
        for row in rows[1:]:
            largest = largest.maximum(row.amax(dimension, keepdim=True))
        total = sum((row - largest.detach()).exp().sum(dimension, keepdim=True) for row in rows)
        for row, i in zip(rows, members, strict=True):
            logarithm = row - largest.detach() - total.log()
            made[i] = logarithm if signature.function == "aten._log_softmax" else logarithm.exp()
    return [made[i] for i in range(len(shards))]


def _others(signature: Signature) -> tuple[str, ...]:
    """The variables but that of the dimension along which rows add up to one."""
    own = positive(argument(signature, 1), len(signature.shape))
    return tuple(name for i, name in enumerate(names(signature.shape)) if i != own)
