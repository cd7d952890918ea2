"""Attention: y[b, l, e] = sum over s of softmax(query[b, l] key[b, s]) value[b, s, e]; b stands for batch and heads.

What the scores are summed and normalised over is not divided: s, and the width of a query.
"""

from __future__ import annotations

from graphs.notation.operator import Operator, tensor
from graphs.operators import Description
from graphs.operators._indices import argument, broadcast, is_read
from graphs.signatures import Signature

KINDS = ("aten.scaled_dot_product_attention",)
EXAMPLES = (
    "aten.scaled_dot_product_attention(x(2, 3, 4, 2), x(2, 3, 5, 2), x(2, 3, 5, 3))",
    "aten.scaled_dot_product_attention(x(2, 3, 4, 2), x(2, 3, 5, 2), x(2, 3, 5, 3), x(4, 5))",
    "aten.scaled_dot_product_attention(x(2, 6, 4), x(2, 6, 4), x(2, 6, 6), None, 0.0, True)",
)

_MASK, _CAUSAL = 3, 5  # positions among the arguments


def build() -> Description:
    """Of `scaled_dot_product_attention`, with as many heads of keys as of queries."""
    return Description(_operator)


def _operator(signature: Signature) -> Operator | None:
    query, key, value = (read.shape for read in signature.reads[:3])
    if query[:-2] != key[:-2] or key[:-2] != value[:-2]:
        return None
    is_causal = argument(signature, _CAUSAL, False) or signature.named.get("is_causal", False)
    batch = [f"b{i}" for i in range(len(query) - 2)]
    names = [*batch, "l", "s", "q", "e"]
    sizes = dict(zip(names, [*query[:-1], key[-2], query[-1], value[-1]], strict=True))
    reads = [tensor(query, *batch, "l", "q"), tensor(key, *batch, "s", "q"), tensor(value, *batch, "s", "e")]
    if is_read(argument(signature, _MASK)) or is_read(signature.named.get("attn_mask")):
        reads.append(broadcast(signature.reads[3].shape, [*batch, "l", "s"], (*query[:-1], key[-2])))
    opaque = {"s", "q"} | ({"l"} if is_causal else set())  # which keys a query sees depends on where it is
    return Operator(sizes, tuple(reads), (tensor(signature.shape, *batch, "l", "e"),), opaque=frozenset(opaque))
