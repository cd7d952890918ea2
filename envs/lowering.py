"""Lowering: what all placements of a problem share, laid out as the engine reads it, and where one puts each op."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.compiled import compiled
from graphs.op_graph import Bools, Floats, Ints
from graphs.problem import Problem

Indices = NDArray[np.int32]  # half the bytes of int64: large graphs are bound by the cache


class Blueprint(NamedTuple):
    """A problem and its costs. The out-edges of an op lie together, those with its output before control edges."""

    unit: Indices  # (ops,) unit of each op
    inputs: Indices  # (ops,) number of in-edges, control edges included
    out_start: Indices  # (ops + 1,) where the out-edges of each op begin, in `consumer`
    control_start: Indices  # (ops,) where the control edges among them begin
    consumer: Indices  # (edges,) op
    in_start: Indices  # (ops + 1,) where the data edges into each op begin, in `in_edge`
    in_edge: Indices  # (data edges,) their positions in `consumer`
    producer: Indices  # (data edges,) and where they come from: op
    priority: Floats  # (ops,) the smaller goes first; empty: first come, first served
    op_seconds: Floats  # (ops, devices)
    output_bytes: Floats  # (ops,)
    launch_seconds: Floats  # (devices,)
    latency: Floats  # (devices, devices) seconds
    bandwidth: Floats  # (devices, devices) bytes/s
    channel: Indices  # (devices, devices)
    gap: Floats  # (channels,) seconds
    multicast: Bools  # (channels,)
    use_start: Indices  # (weights + 1,) where the uses of each weight begin, in `user`
    user: Indices  # (uses,) op
    weight_bytes: Floats  # (weights,) with gradient and optimizer state

    @classmethod
    def of(cls, problem: Problem, op_seconds: Floats, priority: Floats) -> Blueprint:
        """Arrays of a problem; `priority` is (ops,), or empty for first come, first served."""
        graph, cluster = problem.graph, problem.cluster
        order = np.lexsort((graph.control, graph.edges[:, 0]))
        producer, consumer = graph.edges[order].T
        control = graph.control[order]
        data = np.flatnonzero(~control)
        in_order = np.argsort(consumer[data], kind="stable")
        uses = graph.weight_uses[np.argsort(graph.weight_uses[:, 1], kind="stable")]
        ops = len(graph)
        out_start = _starts(producer, ops)
        return cls(
            unit=graph.units.astype(np.int32),
            inputs=np.bincount(consumer, minlength=ops).astype(np.int32),
            out_start=out_start,
            control_start=out_start[:-1] + np.bincount(producer[data], minlength=ops).astype(np.int32),
            consumer=consumer.astype(np.int32),
            in_start=_starts(consumer[data], ops),
            in_edge=data[in_order].astype(np.int32),
            producer=producer[data[in_order]].astype(np.int32),
            priority=np.array(priority),
            op_seconds=np.array(op_seconds, order="C"),
            output_bytes=np.array(graph.output_bytes),
            launch_seconds=cluster.launch_seconds,
            latency=np.array(cluster.latency, order="C"),
            bandwidth=np.array(cluster.bandwidth, order="C"),
            channel=cluster.channel.astype(np.int32, order="C"),
            gap=np.array(cluster.gap, np.float64),
            multicast=np.array(cluster.multicast, np.bool_),
            use_start=_starts(uses[:, 1], len(graph.weights)),
            user=uses[:, 0].astype(np.int32),
            weight_bytes=graph.weights * problem.bytes_per_weight_byte,
        )


def _starts(key: Ints, count: int) -> Indices:
    """(count + 1,) where each key begins once they are sorted."""
    starts = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(key, minlength=count), out=starts[1:])
    return starts


@compiled
def static_bytes(blueprint: Blueprint, device: Indices, seen: Indices, total: Floats) -> None:
    """Write, per device, the bytes of the distinct weights of the ops there, gradients and optimizer state included.

    `device` is that of each op, (ops,); `seen`, (devices,), is scratch.
    """
    total[:] = 0.0
    seen[:] = -1
    for weight in range(len(blueprint.weight_bytes)):
        for use in range(blueprint.use_start[weight], blueprint.use_start[weight + 1]):
            where = device[blueprint.user[use]]
            if seen[where] != weight:
                seen[where] = weight
                total[where] += blueprint.weight_bytes[weight]
