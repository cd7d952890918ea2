"""Concatenation: each input is a range of the result, so a part needs nothing of those that are outside of its own."""

from dataclasses import replace

from graphs.notation.affine import variable
from graphs.notation.operator import Operator
from graphs.notation.signatures import Signature
from graphs.operators import Description
from graphs.operators._indices import all_of, argument, positive, sizes

KINDS = ("aten.cat",)
EXAMPLES = (
    "aten.cat([x(2, 3, 4), x(2, 6, 4), x(2, 1, 4)], 1)",
    "aten.cat([x(4), x(3)])",
    "aten.cat([x(2, 3), x(2, 5)], -1)",
)


def build() -> Description:
    """Of `cat`."""
    return Description(_operator)


def _operator(signature: Signature) -> Operator | None:
    result = all_of(signature.shape)
    joined = positive(argument(signature, 1, 0), len(signature.shape))
    reads, start = [], 0
    for read in signature.reads:
        if len(read.shape) != len(signature.shape):  # an empty tensor, which PyTorch leaves out
            return None
        index = [*result.index]
        index[joined] = variable(f"d{joined}") - start
        reads.append(replace(result, shape=read.shape, index=tuple(index), clipped=True))
        start += read.shape[joined]
    return Operator(sizes(signature.shape), tuple(reads), (result,))
