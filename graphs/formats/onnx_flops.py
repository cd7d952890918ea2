"""FLOPs of ONNX operators, by formula: products, convolutions, recurrent layers and attention.

As in PyTorch's FLOP counter, a multiplication and its addition are two, and all else costs memory traffic only. The
operators are those of the ONNX specification, docs/Operators.md.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class OnnxCall:
    """One use of an operator."""

    operator: str  # "Conv"
    attributes: Mapping[str, Any]  # as the file gives them
    read: Sequence[Shape | None]  # the shape of each input, in order; None for one that is left out
    written: Sequence[Shape]  # the shape of each output


def flops(call: OnnxCall) -> float:
    """FLOP of a call; 0 for an operator without a formula."""
    formula = _FORMULAS.get(call.operator)
    return 2.0 * formula(call) if formula else 0.0


def numel(shape: Shape | None) -> float:
    """Elements of a tensor, 0 of one that is left out; a float, as a file may claim any shape."""
    return 0.0 if shape is None else float(math.prod(map(float, shape)))


def matmul(call: OnnxCall) -> float:
    """Half the FLOP of a product, of any number of matrices."""
    left = call.read[0] or (0,)
    return numel(call.written[0]) * left[-1]


def gemm(call: OnnxCall) -> float:
    """Half the FLOP of a product of two matrices, of which the first may be transposed."""
    rows, columns = call.read[0] or (0, 0)
    return numel(call.written[0]) * (rows if call.attributes.get("transA", 0) else columns)


def convolution(weight: int) -> Callable[[OnnxCall], float]:
    """Every output element takes a product with one filter; the input `weight` is (filters, channels, *kernel)."""
    return lambda call: numel(call.written[0]) * numel((call.read[weight] or (0, 0))[1:])


def transposed_convolution(call: OnnxCall) -> float:
    """Every input element is multiplied into one filter, (channels, filters, *kernel)."""
    return numel(call.read[0]) * numel((call.read[1] or (0, 0))[1:])


def _recurrent(call: OnnxCall) -> float:
    """Every step multiplies each row by the input's and the state's matrices, of both directions if there are two."""
    rows = numel((call.read[0] or (0, 0, 0))[:2])  # steps and batch, in either layout
    return rows * (numel(call.read[1]) + numel(call.read[2]))


def _attention(call: OnnxCall) -> float:
    """Queries by keys, and scores by values; (batch, heads, length, size), or (batch, length, heads * size)."""
    query, key, value = (shape or (0, 0, 0, 0) for shape in call.read[:3])
    past = call.read[4] if len(call.read) > 4 else None
    length = key[-2] + (past[-2] if past else 0)
    shared = 1.0  # keys and values may be shared by several heads
    if len(query) == 3:
        shared = float(call.attributes.get("q_num_heads", 1)) / max(float(call.attributes.get("kv_num_heads", 1)), 1.0)
        return numel(query[:-1]) * length * (float(query[-1]) + shared * value[-1])
    return numel(query[:-1]) * length * (float(query[-1]) + value[-1])


def _einsum(call: OnnxCall) -> float:
    """One product per combination of all indices and per pair of operands, in the order given."""
    equation = call.attributes.get("equation", b"").decode(errors="replace")
    terms = re.sub(r"\s", "", equation).partition("->")[0].split(",")
    sizes: Counter[str] = Counter()
    for term, shape in zip(terms, call.read, strict=False):
        head, dots, tail = term.partition("...")
        spread = len(shape or ()) - len(head) - len(tail)
        indices = [*head, *(f"{i}." for i in range(spread if dots else 0, 0, -1)), *tail]
        for index, size in zip(indices, shape or (), strict=False):
            sizes[index] = max(sizes[index], size)  # a size of 1 is spread over the other's
    return numel(tuple(sizes.values())) * (len(terms) - 1)


_FORMULAS: dict[str, Callable[[OnnxCall], float]] = {
    **dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul"), matmul),
    "Gemm": gemm,
    **dict.fromkeys(("Conv", "ConvInteger", "DeformConv"), convolution(weight=1)),
    "QLinearConv": convolution(weight=3),
    "ConvTranspose": transposed_convolution,
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _recurrent),
    "Attention": _attention,
    "Einsum": _einsum,
}
