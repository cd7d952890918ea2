"""Kinds of kernels: the kinds of a graph's ops, with those apart for which libraries have kernels of another speed.

`.winograd`: convolutions that cuDNN computes by Winograd's algorithm. For kernels of 3 x 3 that move by one, it needs
down to 1 / 2.25 of the products that are counted (Lavin and Gray, "Fast algorithms for convolutional neural networks",
CVPR 2016): in the forward pass and for gradients of inputs, but in single precision only, since tensor cores compute
the products themselves.

`.unaligned`: products in half precision of matrices whose rows are no multiple of 16 bytes, such as those of GPT-2's
50,257 words, which tensor cores do not read as they are ("Matrix Multiplication Background", NVIDIA).

`.wide`: softmax over more than 1024 elements, which PyTorch reads more than once (`softmax_warp_forward` of
aten/src/ATen/native/cuda/PersistentSoftmax.cuh keeps up to 1024 in registers).

`.causal`: attention in which each query sees the keys before it. Its FLOP are those of all pairs, as PyTorch counts
them; kernels skip the blocks that nothing is seen of, nearly half of them (Dao, "FlashAttention-2", ICLR 2024).
"""

from collections.abc import Iterator
from functools import reduce

import numpy as np

from graphs.notation.signatures import Signature
from graphs.op_graph import RECOMPUTED, OpGraph
from graphs.op_graph.precision import BYTES, SINGLE
from graphs.operators.attention import ATTENTION, is_causal

CONVOLUTION = "aten.convolution"
PRODUCTS = ("aten.mm", "aten.addmm")
SOFTMAX = ("aten._softmax", "aten._log_softmax")
ENDS = WINOGRAD, UNALIGNED, WIDE, CAUSAL = ".winograd", ".unaligned", ".wide", ".causal"  # of kinds of forward ops
ALIGNED = 8  # elements in half precision: a row of them is a multiple of 16 bytes
WIDEST = 1024  # elements of a softmax that are read once
BACKWARD = (".grad", ".grad_weight")  # the ends of kinds of backward ops


def kernel_kinds(graph: OpGraph) -> tuple[str, ...]:
    """(ops,) kinds; without signatures, those of the graph."""
    if graph.signatures is None:
        return graph.kinds
    ends, kinds = [_end(each) for each in graph.signatures.distinct], list(graph.kinds)
    forward = np.where(graph.mirror >= 0, graph.mirror, np.arange(len(graph)))
    for op, number in enumerate(graph.signatures.of[forward].tolist()):
        end = ends[number] if number >= 0 else ""
        precision = "".join(graph.precisions[op : op + 1])
        if end == WINOGRAD and (kinds[op].endswith(BACKWARD[1]) or precision != SINGLE):
            continue
        if end == UNALIGNED and BYTES.get(precision) != BYTES["fp16"]:
            continue
        if end:
            function = graph.signatures.distinct[number].function
            kinds[op] = kinds[op].replace(function, function + end, 1)
    return tuple(kinds)


def listed_names(kind: str) -> Iterator[str]:
    """The kinds by which a kind may be listed: its own, then that of its forward op, each also without its end."""
    for name in (kind, kind.removesuffix(BACKWARD[0]).removesuffix(BACKWARD[1]).removesuffix(RECOMPUTED)):
        yield name
        yield reduce(lambda plain, end: plain.replace(end, ""), ENDS, name)


def _end(of: Signature) -> str:
    """What ends the kind of a forward op."""
    if of.function in PRODUCTS:
        return UNALIGNED if any(each.shape[-1] % ALIGNED for each in of.reads[-2:]) else ""
    if of.function in SOFTMAX and len(of.arguments) > 1:
        return WIDE if of.reads[0].shape[of.arguments[1]] > WIDEST else ""
    if of.function == ATTENTION:
        return CAUSAL if is_causal(of) else ""
    if of.function != CONVOLUTION or len(of.arguments) < 9:
        return ""
    _, _, _, stride, _, dilation, transposed, _, groups = of.arguments[:9]
    is_dense = {*stride, *dilation} == {1} and not transposed and groups == 1
    return WINOGRAD if is_dense and of.reads[1].shape[2:] == (3, 3) else ""
