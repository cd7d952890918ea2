"""Unsent: what ops occupy in addition to their one output.

Autograd computes the gradients of all operands of an op together, in several operations, and makes them of further
results of the op, which the model does not see. The sizes are those of PyTorch's formulas for derivatives. A model's
code keeps what no op reads any more, as `graphs.capture.lifetimes` sees it.
"""

import math
from collections.abc import Iterable

import numpy as np

from graphs.notation.signatures import Signature
from graphs.op_graph import Floats, Ints, OpGraph
from graphs.op_graph.autograd import Memory

ATTENTION = "scaled_dot_product_attention"
# Bytes per element of what these return in addition to their output, and save: a mask, statistics, indices.
SAVES_RESULTS = {
    "native_dropout": 1, "native_layer_norm": 4, "native_group_norm": 4, "_native_batch_norm_legit_functional": 4,
    "adaptive_max_pool2d": 8, "adaptive_max_pool3d": 8, "fractional_max_pool2d": 8, "max": 8,
    "max_pool2d_with_indices": 8, "max_pool3d_with_indices": 8, "median": 8, "min": 8, "sort": 8, "topk": 8,
}  # fmt: skip
# How many tensors, as large as an operand, formulas of gradients make and free: of sin(x), grad * x.cos(), one.
_INTERMEDIATE = {
    "abs": 1, "acos": 5, "asin": 4, "atan": 2, "cos": 2, "cosh": 1, "cumsum": 2, "erf": 4, "erfc": 4,
    "linalg_vector_norm": 1, "log10": 1, "log1p": 1, "log2": 1, "logsumexp": 2, "pow": 2, "reciprocal": 2, "rsqrt": 2,
    "sin": 1, "sinh": 1, "sqrt": 1, "std": 1, "tan": 2, "var": 1,
}  # fmt: skip
_OF_DIVISOR = 3  # that of y in x / y: -grad * ((x / y) / y)
_FULL = {"div", "mul", "where"}  # the gradient of an operand that is expanded is made in full, then summed


def results_bytes(kind: str, signature: Signature | None) -> float:
    """Of the results of an op that its backward pass alone reads; 0 if its signature is not known."""
    if signature is None:
        return 0.0
    if kind == ATTENTION:  # the logarithm of the sum of each row
        return 4.0 * math.prod(signature.shape[:-1])
    shapes = [shape for shape in signature.outputs[1:3] if shape is not None]
    return float(SAVES_RESULTS.get(kind, 0) * sum(map(math.prod, shapes)))


def working_bytes(kind: str, operands: Floats, output: float, *, of_divisor: bool = False) -> float:
    """Of what is made and freed while the gradients of operands, (operands,) bytes each, are computed.

    `output` is the size of what the op made of them.
    """
    times = _OF_DIVISOR if of_divisor else _INTERMEDIATE.get(kind, 0)
    is_summed = kind in _FULL and not of_divisor and bool((operands < output).any())
    return times * max(float(operands.max()), output if of_divisor else 0.0) + is_summed * output


def gradients_bytes(kind: str, operands: Floats) -> float:
    """Of the gradients of operands of an op, (operands,) bytes each: summands share the one that arrives."""
    return float(operands.max() if kind == "add" else operands.sum())


def kept_bytes(graph: OpGraph, memories: Iterable[Memory]) -> Floats:
    """(ops,) bytes that a model's code keeps while each op runs, beyond the outputs that ops still read.

    Outputs in the same memory take it once: less is kept then.
    """
    read, kept = last_readers(graph), np.zeros(len(graph))
    for memory in memories:
        size = graph.output_bytes[memory.ops[0]]
        kept[memory.ops[0] : memory.until + 1] += size
        for op in memory.ops:
            kept[op : min(read[op], memory.until) + 1] -= graph.output_bytes[op]
    return np.maximum(kept, 0.0)


def kept_while(graph: OpGraph, memories: Iterable[Memory], op: int) -> dict[int, float]:
    """The bytes that a model's code keeps while an op runs, as `kept_bytes` has them, by the ops that made them."""
    read, found = last_readers(graph), dict[int, float]()
    for memory in memories:
        if memory.ops[0] <= op <= memory.until:
            outputs = sum(float(graph.output_bytes[each]) for each in memory.ops if each <= op <= read[each])
            found[memory.ops[0]] = found.get(memory.ops[0], 0.0) + float(graph.output_bytes[memory.ops[0]]) - outputs
    return {each: size for each, size in found.items() if size > 0}


def last_readers(graph: OpGraph) -> Ints:
    """(ops,) the last op that reads the output of each, or itself."""
    last = np.arange(len(graph))
    producer, consumer = graph.edges[~graph.control].T
    np.maximum.at(last, producer, consumer)
    return last
