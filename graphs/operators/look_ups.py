"""Look-ups: y[n, e] = sum over v of (index[n] = v) table[v, e], so the rows of a table are a reduction.

A part of the rows finds those that it has, and makes zeros in place of others, as the vocabulary-parallel embedding of
Megatron-LM does (Shoeybi et al. 2019, section 3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphs.notation.operator import Operator, tensor
from graphs.notation.signatures import Signature
from graphs.operators import Description
from graphs.operators._indices import all_of, argument, names, positive, sizes

if TYPE_CHECKING:
    from torch import Tensor

    from graphs.notation.shard import Shard

KINDS = ("aten.embedding", "aten.gather")
EXAMPLES = (
    "aten.embedding(x(10, 4), i(10, 3, 6))",
    "aten.embedding(x(10, 4), i(10, 6), 2)",
    "aten.embedding(x(10, 4), i(10, 6), -1, False, True)",
    "aten.gather(x(4, 10), 1, i(10, 4, 6))",
    "aten.gather(x(4, 10, 1, 3), 1, i(10, 4, 1, 1, 3))",
)


def build() -> Description:
    """Of `embedding` and `gather`."""
    return Description(_operator, _run)


def _operator(signature: Signature) -> Operator | None:
    if signature.function == "aten.gather":
        return _gather(signature)
    table, index = (read.shape for read in signature.reads)
    if argument(signature, 3):  # gradients divided by how often a row was read, of which no part knows
        return None
    found = names(index)
    return Operator(
        sizes(index) | {"v": table[0], "e": table[1]},
        (tensor(table, "v", "e"), all_of(index)),
        (tensor(signature.shape, *found, "e"),),
        ordered=frozenset("v"),
    )


def _gather(signature: Signature) -> Operator | None:
    """y[i, j] = x[i, index[i, j]], along the last dimension or another one."""
    table, index = (read.shape for read in signature.reads)
    looked = positive(argument(signature, 1), len(index))
    if not index:
        return None
    own = [*names(index)]
    own[looked] = "v"
    reads = tensor(table, *own), all_of(index)
    return Operator(sizes(index) | {"v": table[looked]}, reads, (all_of(signature.shape),), ordered=frozenset("v"))


def _run(shard: Shard) -> Tensor:
    table, index = shard.tensors
    rows = shard.space["v"]
    inside = (index >= rows.low) & (index <= rows.high)
    local = (index - rows.low).clamp(0, rows.size - 1)
    if shard.signature.function == "aten.gather":
        dimension = positive(argument(shard.signature, 1), index.dim())
        return table.gather(dimension, local) * inside
    found = table[local] * inside.unsqueeze(-1)
    padding = argument(shard.signature, 2, -1)
    is_padding = index.eq(padding).unsqueeze(-1)  # whose row gets no gradient
    return found.detach() * is_padding + found * ~is_padding
