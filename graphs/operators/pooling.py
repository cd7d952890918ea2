"""Pooling: the largest, or the average, of each window of an image."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from graphs.notation.affine import variable
from graphs.notation.operator import Operator, tensor
from graphs.notation.ranges import shape_of
from graphs.notation.signatures import Signature
from graphs.operators import Description
from graphs.operators._indices import argument, numbers

if TYPE_CHECKING:
    from torch import Tensor

    from graphs.notation.shard import Shard

KINDS = ("aten.max_pool2d_with_indices", "aten.avg_pool2d")
EXAMPLES = (
    "aten.max_pool2d_with_indices(x(2, 2, 6, 4), [2, 2], [2, 2])",
    "aten.max_pool2d_with_indices(x(2, 2, 7, 5), [3, 3], [2, 2], [1, 1])",
    "aten.max_pool2d_with_indices(x(2, 2, 7, 5), [2, 2], [1, 1], [0, 0], [2, 2])",
    "aten.avg_pool2d(x(2, 2, 7, 5), [3, 3], [1, 1], [1, 1])",
    "aten.avg_pool2d(x(2, 2, 7, 5), [3, 3], [2, 2], [1, 1], False, False)",
    "aten.avg_pool2d(x(2, 2, 6, 4), [2, 2])",
)

_MAXIMUM = "aten.max_pool2d_with_indices"


def build() -> Description:
    """Of `max_pool2d_with_indices` and `avg_pool2d`."""
    return Description(_operator, _run)


def _operator(signature: Signature) -> Operator | None:
    image, shape = signature.reads[0].shape, signature.shape
    windows, strides, paddings = _windows(signature)
    is_maximum = signature.function == _MAXIMUM
    dilations = numbers(argument(signature, 4), 2, 1) if is_maximum else (1, 1)
    if argument(signature, 5 if is_maximum else 4) or len(image) != 4:  # windows that leave the image (ceil_mode)
        return None
    if not is_maximum and argument(signature, 6) is not None:
        return None
    sizes = dict(zip(("n", "c", "h", "w", "kh", "kw"), (*shape, *windows), strict=True))
    rows, columns = (
        variable(name) * stride + variable(f"k{name}") * dilation - padding
        for name, stride, dilation, padding in zip("hw", strides, dilations, paddings, strict=True)
    )
    fill = -math.inf if is_maximum else 0.0
    return Operator(
        sizes,
        (tensor(image, "n", "c", rows, columns, fill=fill),),
        (tensor(shape, "n", "c", "h", "w"),),
        "max" if is_maximum else "sum",
        opaque=frozenset({"kh", "kw"}),
    )


def _run(shard: Shard) -> Tensor:
    """What was filled in is part of the slice already; where it does not count, the ones that do are averaged, too."""
    if shard.signature.function == _MAXIMUM:
        return shard.call({2: _strides(shard), 3: [0, 0]})
    kept = {2: _strides(shard), 3: [0, 0], 5: True}
    average = shard.call(kept)
    if argument(shard.signature, 5, True):
        return average
    image = shard.tensors[0]
    return average / shard.call(kept, tensors=[shard.filled(0, image.new_ones(shape_of(shard.boxes[0])))])


def _strides(shard: Shard) -> list[int]:
    return list(_windows(shard.signature)[1])


def _windows(signature: Signature) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Windows, strides and paddings; a stride that is left out is the window."""
    windows = numbers(argument(signature, 1), 2, 1)
    strides = argument(signature, 2)
    return windows, numbers(strides, 2, 1) if strides else windows, numbers(argument(signature, 3), 2, 0)
