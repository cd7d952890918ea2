"""Precision: in which types of numbers tensors are kept and products are computed, by the short names of data sheets.

    fp64  fp32  tf32  fp16  bf16  fp8  int8

Single precision is the empty text wherever a graph holds one precision per op or per weight, so that what says nothing
is in single precision. TF32 is a way of computing products of tensors in single precision, and no type of tensors.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from graphs.notation.signatures import origin
from graphs.op_graph import Bools, OpGraph

SINGLE = ""  # fp32, in a graph
BYTES = {"fp64": 8.0, "fp32": 4.0, SINGLE: 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0}  # of an element
PEAKS = ("fp64", "tf32", "fp16", "bf16", "fp8", "int8")  # those of which a device may have a peak besides that of fp32
_NAMES = {"float64": "fp64", "double": "fp64", "float16": "fp16", "bfloat16": "bf16", "int8": "int8", "uint8": "int8"}


def precision_of(dtype: str) -> str:
    """The precision of a type by PyTorch's or ONNX's name, "bfloat16"; SINGLE for float32, and for any other type."""
    return "fp8" if dtype.startswith("float8") else _NAMES.get(dtype, SINGLE)


def has_master_copy(graph: OpGraph) -> Bools:
    """(weights,) whether the optimizer's state of each has a copy of it in single precision."""
    is_half = np.array([BYTES[each] < BYTES[SINGLE] for each in graph.weight_precisions], np.bool_)
    return is_half & graph.master_weights if len(is_half) else np.zeros(len(graph.weights), np.bool_)


def with_precisions(graph: OpGraph) -> OpGraph:
    """A graph that names no precisions, as files of earlier versions, with those that its signatures say.

    An op with FLOP multiplies in that of the first tensor that it, or the op whose mirror it is, reads.
    """
    signatures = graph.signatures
    if signatures is None or graph.precisions or graph.weight_precisions:
        return graph
    first = [precision_of(each.reads[0].dtype) if each.reads else SINGLE for each in signatures.distinct]
    numbers = np.where(graph.mirror >= 0, signatures.of[graph.mirror], signatures.of).tolist()
    multiplies = (graph.flops > 0).tolist()
    ops = tuple(first[k] if k >= 0 and works else SINGLE for k, works in zip(numbers, multiplies, strict=True))
    weights = [SINGLE] * len(graph.weights)
    for op in np.flatnonzero(signatures.of >= 0).tolist():
        for number, read in zip(signatures.numbers(op), signatures.distinct[signatures.of[op]].reads, strict=True):
            if (source := origin(number, len(weights))).kind == "weight":
                weights[source.number] = precision_of(read.dtype)
    return replace(graph, precisions=ops, weight_precisions=tuple(weights)) if any(ops) or any(weights) else graph


def appended_precisions(of: tuple[str, ...], mirror: Iterable[int], flops: Iterable[float]) -> tuple[str, ...]:
    """(ops + added,) with further ops, each of which multiplies, if it does, as the op whose mirror it is."""
    return of and (*of, *(of[op] if work > 0 else SINGLE for op, work in zip(mirror, flops, strict=True)))
