"""Coverage: how much of a graph's work is described in index notation, and which kinds of ops are not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphs.op_graph import Bools, OpGraph, Phase
from graphs.operators import described


@dataclass(frozen=True)
class Coverage:
    """Shares of a step, from 0 to 1, and what they lack."""

    flops: float
    bytes_accessed: float
    missing: tuple[str, ...]  # the kinds of ops that are not described


def described_ops(graph: OpGraph) -> Bools:
    """(ops,) whether each op can be divided by its description.

    A backward op can if its forward op can, and any update can: it is done element by element, as is the loss that ends
    the forward pass of a training step. Without signatures, nothing is known of forward ops.
    """
    known = np.zeros(len(graph), np.bool_)
    if graph.signatures is not None:
        distinct = np.array([described(each) is not None for each in graph.signatures.distinct], np.bool_)
        known = np.append(distinct, False)[graph.signatures.of]
        known |= np.array([kind == "loss" for kind in graph.kinds])
    mirrored = (graph.mirror >= 0) & (graph.phase == Phase.BACKWARD)
    known[mirrored] = known[graph.mirror[mirrored]]
    return np.asarray(known | (graph.phase >= Phase.UPDATE))


def coverage(graph: OpGraph) -> Coverage:
    """The shares of FLOPs and of bytes accessed that are of described ops."""
    known = described_ops(graph)
    shares = [
        float(costs[known].sum() / costs.sum()) if costs.sum() else 1.0 for costs in (graph.flops, graph.bytes_accessed)
    ]
    missing = {graph.kinds[op] for op in np.flatnonzero(~known).tolist()}
    return Coverage(shares[0], shares[1], tuple(sorted(missing)))
