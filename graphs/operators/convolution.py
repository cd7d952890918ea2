"""Convolutions: y[n, co, h, w] = sum over ci, kh, kw of x[n, ci, h + kh, w + kw] weight[co, ci, kh, kw].

With groups, channel c is member c % size of group c // size. Only whole groups are divided, or else all members of a
single group. A window is not divided: each part would read nearly all of the image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphs.notation.affine import variable
from graphs.notation.operator import Access, Operator, tensor
from graphs.notation.signatures import Signature
from graphs.operators import Description
from graphs.operators._indices import argument, is_read, numbers

if TYPE_CHECKING:
    from torch import Tensor

    from graphs.notation.shard import Shard

KINDS = ("aten.convolution",)
EXAMPLES = (
    "aten.convolution(x(2, 2, 6, 5), x(4, 2, 3, 3), x(4), [1, 1], [1, 1], [1, 1], False, [0, 0], 1)",
    "aten.convolution(x(2, 2, 7, 3), x(2, 2, 3, 1), None, [2, 1], [1, 0], [2, 1], False, [0, 0], 1)",
    "aten.convolution(x(2, 4, 6, 4), x(4, 2, 2, 2), x(4), [2, 2], [0, 0], [1, 1], False, [0, 0], 2)",
    "aten.convolution(x(2, 3, 6, 2), x(3, 1, 5, 5), None, [1, 1], [2, 2], [1, 1], False, [0, 0], 3)",
    "aten.convolution(x(2, 2, 9), x(2, 2, 2), x(2), [1], [0], [4], False, [0], 1)",
    "aten.convolution(x(2, 2, 3, 3, 3), x(2, 2, 3, 3, 3), None, [1, 1, 1], [1, 1, 1], [1, 1, 1], False, [0, 0, 0], 1)",
)


def build() -> Description:
    """Of `convolution`, of one to three dimensions, unless it is transposed."""
    return Description(_operator, _run)


def _operator(signature: Signature) -> Operator | None:
    image, weight = (read.shape for read in signature.reads[:2])
    space = len(image) - 2
    if argument(signature, 6):
        return None
    strides, paddings, dilations = (numbers(argument(signature, i), space, i == 3 or i == 5) for i in (3, 4, 5))
    groups = int(argument(signature, 8, 1))
    outs, windows = ["h", "w", "d"][:space], ["kh", "kw", "kd"][:space]
    index = [
        variable(out) * stride + variable(window) * dilation - padding
        for out, window, stride, dilation, padding in zip(outs, windows, strides, dilations, paddings, strict=True)
    ]
    members = weight[0] // groups, weight[1]  # of a group, among what is written and read
    sizes = {"n": image[0], "g": groups, "co": members[0], "ci": members[1]}
    sizes |= dict(zip(outs, signature.shape[2:], strict=True)) | dict(zip(windows, weight[2:], strict=True))
    written, read = (variable("g") * size + variable(name) for name, size in zip(("co", "ci"), members, strict=True))
    reads = [
        tensor(image, "n", read, *index, fill=0.0),
        tensor(weight, written, "ci", *windows),
    ]
    reductions = frozenset({"ci", *windows})
    if is_read(argument(signature, 2)):
        reads.append(Access(signature.reads[2].shape, (written,), apart=reductions))
    opaque = frozenset(windows) | (frozenset({"co", "ci"}) if groups > 1 else frozenset())
    result = tensor(signature.shape, "n", written, *outs)
    return Operator(sizes, tuple(reads), (result,), opaque=opaque)


def _run(shard: Shard) -> Tensor:
    """What was filled in is part of the slice already."""
    space = len(shard.tensors[0].shape) - 2
    return shard.call({4: [0] * space, 8: shard.space["g"].size})
