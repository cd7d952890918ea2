"""Attention: y[b, l, e] = sum over s of softmax(query[b, l] key[b, s]) value[b, s, e]; b stands for batch and heads.

What the scores are summed and normalised over is not divided: s, and the width of a query. Several heads of queries may
share one of keys and values; they stay together. Each part drops scores of its own. A part of the queries that see the
keys before them alone needs a mask of its own, since it does not begin at the first key.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from graphs.notation.affine import variable
from graphs.notation.operator import Operator, tensor
from graphs.notation.signatures import Signature
from graphs.operators import Description
from graphs.operators._indices import argument, broadcast, is_read

if TYPE_CHECKING:
    from torch import Tensor

    from graphs.notation.shard import Shard

KINDS = ("aten.scaled_dot_product_attention",)  # as text: it is read without running the file
(ATTENTION,) = KINDS
EXAMPLES = (
    "aten.scaled_dot_product_attention(x(2, 3, 4, 2), x(2, 3, 5, 2), x(2, 3, 5, 3))",
    "aten.scaled_dot_product_attention(x(2, 3, 4, 2), x(2, 3, 5, 2), x(2, 3, 5, 3), x(4, 5))",
    "aten.scaled_dot_product_attention(x(2, 6, 4), x(2, 6, 4), x(2, 6, 6), None, 0.0, True)",
    "aten.scaled_dot_product_attention(x(2, 4, 4), x(2, 6, 4), x(2, 6, 6), is_causal=True)",
    "aten.scaled_dot_product_attention(x(2, 6, 4, 2), x(2, 3, 5, 2), x(2, 3, 5, 3), enable_gqa=True)",
)

_MASK, _CAUSAL, _SHARED = 3, 5, 7  # positions among the arguments


def build() -> Description:
    """Of `scaled_dot_product_attention`."""
    return Description(_operator, _run)


def _operator(signature: Signature) -> Operator | None:
    query, key, value = (read.shape for read in signature.reads[:3])
    shared = query[-3] // key[-3] if _is_shared(signature) else 1
    if query[:-3] != key[:-3] or query[-3:-2] != tuple(size * shared for size in key[-3:-2]) or key[:-2] != value[:-2]:
        return None
    batch = [f"b{i}" for i in range(len(query) - 2)]
    names = [*batch, "l", "s", "q", "e"]
    sizes = dict(zip(names, [*key[:-2], query[-2], key[-2], query[-1], value[-1]], strict=True))
    heads = [variable(name) for name in batch]
    opaque = {"s", "q"}
    if shared > 1:
        heads[-1], sizes["h"] = heads[-1] * shared + variable("h"), shared
        opaque.add("h")
    reads = [tensor(query, *heads, "l", "q"), tensor(key, *batch, "s", "q"), tensor(value, *batch, "s", "e")]
    if is_read(argument(signature, _MASK)) or is_read(signature.named.get("attn_mask")):
        if shared > 1:
            return None  # which of its heads belong together cannot be said of a mask that is repeated
        reads.append(broadcast(signature.reads[3].shape, [*batch, "l", "s"], (*query[:-1], key[-2])))
    written = (tensor(signature.shape, *heads, "l", "e"),)
    ordered = frozenset({"l"} if is_causal(signature) else ())  # which keys a query sees depends on where it is
    return Operator(sizes, tuple(reads), written, opaque=frozenset(opaque), ordered=ordered)


def _run(shard: Shard) -> Tensor:
    """Attention of a part; where it is causal, by a mask of the part's queries."""
    signature, queries = shard.signature, shard.space["l"]
    if not is_causal(signature):
        return shard.call()
    key = shard.tensors[1]
    seen = key.new_ones(queries.high + 1, key.shape[-2]).tril()[queries.low :] > 0
    named = {name: each for name, each in signature.named.items() if name != "is_causal"}
    masked = replace(shard, signature=msgspec.structs.replace(signature, named=named))
    return masked.call({_MASK: seen} | ({_CAUSAL: False} if len(signature.arguments) > _CAUSAL else {}))


def is_causal(signature: Signature) -> bool:
    """Whether each query sees the keys before it alone."""
    return bool(argument(signature, _CAUSAL, False) or signature.named.get("is_causal", False))


def _is_shared(signature: Signature) -> bool:
    """Whether several heads of queries may share one of keys and values."""
    return bool(argument(signature, _SHARED, False) or signature.named.get("enable_gqa", False))
