"""Kinds of kernels: the kinds of a graph's ops, with convolutions that cuDNN computes by Winograd's algorithm apart.

For kernels of 3 x 3 that move by one, it needs down to 1 / 2.25 of the products that are counted (Lavin and Gray, "Fast
algorithms for convolutional neural networks", CVPR 2016): in the forward pass and for gradients of inputs, but in
single precision only, since tensor cores compute the products themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from graphs.op_graph import RECOMPUTED, OpGraph
from graphs.precision import SINGLE
from graphs.signatures import Signature

CONVOLUTION = "aten.convolution"
WINOGRAD = ".winograd"  # the end of the kind of such a convolution
BACKWARD = (".grad", ".grad_weight")  # the ends of kinds of backward ops


def kernel_kinds(graph: OpGraph) -> tuple[str, ...]:
    """(ops,) kinds; without signatures, those of the graph."""
    if graph.signatures is None or CONVOLUTION not in graph.kinds:
        return graph.kinds
    is_winograd = [by_winograd(each) for each in graph.signatures.distinct]
    kinds = list(graph.kinds)
    for op, (kind, mirror) in enumerate(zip(graph.kinds, graph.mirror.tolist(), strict=True)):
        number = graph.signatures.of[mirror if mirror >= 0 else op]
        single = not graph.precisions or graph.precisions[op] == SINGLE
        if single and number >= 0 and is_winograd[number] and not kind.endswith(BACKWARD[1]):
            kinds[op] = kind.replace(CONVOLUTION, CONVOLUTION + WINOGRAD)
    return tuple(kinds)


def with_signatures(part: OpGraph, whole: OpGraph) -> OpGraph:
    """A part of the work of a graph's ops, from which kinds of kernels follow as they do from the whole."""
    return part if whole.signatures is None else replace(part, signatures=whole.signatures)


def by_winograd(signature: Signature) -> bool:
    """Whether a convolution is of 3 x 3, moves by one, and neither skips inputs nor divides channels in groups."""
    if signature.function != CONVOLUTION or len(signature.arguments) < 9:
        return False
    _, _, _, stride, _, dilation, transposed, _, groups = signature.arguments[:9]
    return signature.reads[1].shape[2:] == (3, 3) and {*stride, *dilation} == {1} and not transposed and groups == 1


def listed_names(kind: str) -> Iterator[str]:
    """The kinds by which a kind of kernels may be listed: its own, that of its forward op, that of all convolutions."""
    yield kind
    forward = kind.removesuffix(BACKWARD[0]).removesuffix(BACKWARD[1]).removesuffix(RECOMPUTED)
    yield forward
    yield forward.removesuffix(WINOGRAD)
