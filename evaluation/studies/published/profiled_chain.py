"""What planners publish of a model, as a graph: a chain of ops, each measured with one sample."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from graphs.formats.pipedream import LayerProfile, ProfiledLayer
from graphs.op_graph import OpGraph, Phase
from graphs.op_graph.batch_law import BatchLaw


class MeasuredOp(NamedTuple):
    """An op as it was measured: seconds and bytes of a sample, but for its weights."""

    name: str
    forward: float
    backward: float
    sent: float  # bytes that the next op reads, whose gradient returns
    kept: float  # bytes that wait for the backward pass
    weights: float


def chain(name: str, ops: Sequence[MeasuredOp], samples: int) -> OpGraph:
    """A training step with so many samples, to which times are in proportion; updates take none."""
    layers = tuple(
        ProfiledLayer(
            op.name, op.name, op.forward * samples, op.backward * samples, (op.kept * samples,), False, op.weights
        )
        for op in ops
    )
    graph = LayerProfile(name, layers, tuple(pairwise(op.name for op in ops))).graph()
    sent = np.array([op.sent for op in ops]) * samples
    returned = np.append(0.0, sent[:-1])
    of_op = np.where(graph.mirror >= 0, graph.mirror, np.arange(len(graph)))
    is_forward, is_backward = graph.phase == Phase.FORWARD, graph.phase == Phase.BACKWARD
    output = np.where(is_backward, returned[of_op], graph.output_bytes)
    return replace(
        graph, output_bytes=output, transfer_bytes=np.where(is_forward, sent[of_op], output),
        batch_law=BatchLaw(samples),
    )  # fmt: skip
