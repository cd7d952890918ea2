"""Layer normalisation: over the last dimensions, each row for itself; their mean and variance are statistics.

RMS norm, too, whose one statistic is the mean of squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphs.notation.operator import Operator, Statistic
from graphs.notation.signatures import Signature
from graphs.operators import Description
from graphs.operators._indices import alike, all_of, argument, broadcast, is_read, names, sizes

if TYPE_CHECKING:
    from torch import Tensor

    from graphs.notation.shard import Shard

KINDS = ("aten.native_layer_norm", "aten.rms_norm")
EXAMPLES = (
    "aten.native_layer_norm(x(4, 6, 8), [8], x(8), x(8), 1e-5)",
    "aten.native_layer_norm(x(4, 6, 8), [6, 8], None, None, 1e-5)",
    "aten.native_layer_norm(x(4, 8), [8], x(8), None, 1e-5)",
    "aten.rms_norm(x(4, 6, 8), [8], x(8), 1e-5)",
    "aten.rms_norm(x(4, 6, 8), [6, 8])",
)


def build() -> Description:
    """Of `native_layer_norm` and `rms_norm`."""
    return Description(_operator, together=_together)


def _operator(signature: Signature) -> Operator | None:
    shape = signature.shape
    kept = len(shape) - _normalised(signature)
    reads = (all_of(shape), *(broadcast(read.shape, names(shape), shape) for read in signature.reads[1:]))
    count = 2 if _is_centred(signature) else 1
    statistics = (Statistic(tuple(names(shape)[:kept]), count, count),)
    return Operator(sizes(shape), reads, (all_of(shape),), statistics=statistics)


def _together(shards: Sequence[Shard]) -> list[Tensor]:
    signature = shards[0].signature
    last = list(range(-_normalised(signature), 0))
    kept = names(signature.shape)[: last[0]]
    made: dict[int, Tensor] = {}
    for members in alike(shards, kept):
        rows: list[Any] = [shards[i].tensors[0] for i in members]
        count = sum(row[(0,) * len(kept)].numel() for row in rows)
        mean: Any = sum(row.sum(last, keepdim=True) for row in rows) / count if _is_centred(signature) else 0.0
        variance = sum(((row - mean) ** 2).sum(last, keepdim=True) for row in rows) / count
        for row, i in zip(rows, members, strict=True):
            y = (row - mean) * (variance + _epsilon(signature, row)).rsqrt()
            for position, scales in ((2, True), (3, False)):
                if is_read(given := argument(signature, position)):
                    value = shards[i].tensors[given["read"]]
                    y = y * value if scales else y + value
            made[i] = y
    return [made[i] for i in range(len(shards))]


def _normalised(signature: Signature) -> int:
    """How many dimensions are normalised."""
    return len(argument(signature, 1))


def _is_centred(signature: Signature) -> bool:
    """Whether rows have their mean subtracted."""
    return signature.function == "aten.native_layer_norm"


def _epsilon(signature: Signature, row: Tensor) -> float:
    """What is added to the variance; that of `rms_norm` is by default the machine's of the type of data."""
    import torch  # imported late: it takes a second, and descriptions are read without running anything

    given = argument(signature, 4 if _is_centred(signature) else 3)
    return float(torch.finfo(row.dtype).eps if given is None else given)
