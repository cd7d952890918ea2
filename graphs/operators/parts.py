"""Parts of a tensor: ranges of one dimension, or one index of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphs.notation.affine import Affine, variable
from graphs.notation.operator import Operator, tensor
from graphs.notation.signatures import Signature
from graphs.operators import Description
from graphs.operators._indices import all_of, argument, names, positive, sizes

if TYPE_CHECKING:
    from torch import Tensor

    from graphs.notation.shard import Shard

KINDS = ("aten.select", "aten.slice", "aten.split", "aten.split_with_sizes", "aten.unbind")
EXAMPLES = (
    "aten.select(x(4, 6), 1, -2)",
    "aten.slice(x(4, 8), 1, 2, 7)",
    "aten.slice(x(4, 8), -1, 1, 9223372036854775807, 2)",
    "aten.slice(x(4, 8), 0, -3)",
    "aten.split(x(8, 4), 3)[2]",
    "aten.split_with_sizes(x(4, 9), [2, 3, 4], -1)[1]",
    "aten.unbind(x(4, 6), 1)[2]",
)

_OF_ONE = ("aten.select", "aten.unbind")  # the dimension disappears


def build() -> Description:
    """Of `select`, `slice`, `split`, `split_with_sizes` and `unbind`."""
    return Description(_operator, _run)


def _operator(signature: Signature) -> Operator | None:
    whole = signature.reads[0].shape
    dimension, start, step = chosen(signature)
    index = [variable(name) for name in names(signature.shape)]
    if signature.function in _OF_ONE:
        index.insert(dimension, Affine((), start))
    else:
        index[dimension] = index[dimension] * step + start
    return Operator(sizes(signature.shape), (tensor(whole, *index),), (all_of(signature.shape),))


def _run(shard: Shard) -> Tensor:
    dimension, _, step = chosen(shard.signature)
    part = shard.tensors[0]
    if shard.signature.function in _OF_ONE:
        return part.squeeze(dimension)
    return part[(slice(None),) * dimension + (slice(None, None, step),)]


def chosen(signature: Signature) -> tuple[int, int, int]:
    """The dimension of which a part is taken, the first index of the part, and the step to the next one."""
    function, whole = signature.function, signature.reads[0].shape
    position = {"aten.select": 1, "aten.slice": 1, "aten.unbind": 1}.get(function, 2)
    dimension = positive(argument(signature, position, 0), len(whole))
    if function == "aten.unbind":
        return dimension, signature.output, 1
    if function == "aten.select":
        return dimension, positive(argument(signature, 2), whole[dimension]), 1
    if function == "aten.slice":
        start, step = argument(signature, 2) or 0, argument(signature, 4, 1)
        first = max(start + whole[dimension], 0) if start < 0 else min(start, whole[dimension])
        return dimension, first, step
    before = [shape[dimension] for shape in signature.outputs[: signature.output] if shape is not None]
    return dimension, sum(before), 1
