"""Buckets: how large the gradients of weights are, and which of them are summed up together over replicas.

Gradients are put into buckets in the order in which the backward pass makes them, as in PyTorch's
DistributedDataParallel (Li et al. 2020, "PyTorch distributed").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from envs.expansion.collectives import Sums
from envs.expansion.layout import Layout
from envs.expansion.servers import by_server
from envs.expansion.updates import Updates
from graphs.algorithms.pairs import equal_pairs
from graphs.op_graph import Floats, Ints, OpGraph
from graphs.op_graph.weight_memory import weight_gradient_bytes


@dataclass(frozen=True, eq=False)
class Buckets:
    """Gradients that are summed up together. Each bucket is of one stage."""

    of: Ints  # (gradients,) the bucket of each
    origin: Ints  # (buckets,) the gradient that is made last
    stage: Ints  # (buckets,)
    bytes: Floats  # (buckets,)

    @classmethod
    def fill(cls, layout: Layout, gradients: Ints) -> Buckets:
        """Buckets of gradients, (gradients,) ops that are in the order in which the backward pass makes them.

        A bucket is closed as soon as it holds the layout's bytes.
        """
        sizes, stages = gradient_bytes(layout, gradients), layout.stage[gradients]
        of, origin, held = np.empty(len(gradients), np.int64), list[int](), list[float]()
        is_open: dict[int, int] = {}  # stage -> its bucket
        for index, (op, stage, size) in enumerate(
            zip(gradients.tolist(), stages.tolist(), sizes.tolist(), strict=True)
        ):
            bucket = is_open.setdefault(stage, len(held))
            if bucket == len(held):
                origin.append(op)
                held.append(0.0)
            of[index], origin[bucket] = bucket, op
            held[bucket] += size
            if held[bucket] >= layout.bucket_bytes:
                del is_open[stage]
        last = np.array(origin, np.int64)
        return cls(of, last, layout.stage[last], np.array(held))

    @classmethod
    def by_group(cls, layout: Layout, gradients: Ints, group: Ints) -> Buckets:
        """(gradients,) buckets of gradients, as `fill` takes them, each of one group of its stage."""
        found, of = np.unique(group, return_inverse=True)
        last = np.zeros(len(found), np.int64)
        last[of] = gradients
        return cls(of, last, layout.stage[last], np.bincount(of, gradient_bytes(layout, gradients)).astype(np.float64))


def as_made(graph: OpGraph, gradients: Ints) -> Ints:
    """(gradients,) distinct ops, in the order in which the backward pass makes them."""
    distinct = np.unique(gradients)
    return distinct[np.argsort(graph.topological_position[distinct])]


def gradient_bytes(layout: Layout, gradients: Ints) -> Floats:
    """(gradients,) bytes that are to be summed up for each; `gradients`, (gradients,) ops, are `as_made`.

    They are those of the weights that its forward op reads. Where several ops of a stage share a weight, the one that
    is made last has the whole gradient. A gradient of unknown weights is as large as its op's output.
    """
    graph, stage = layout.problem.graph, layout.stage[gradients]
    position, weight = _weights_of(graph, gradients)
    # the last of each stage and weight, in the order of the gradients
    key = stage[position] * (len(graph.weights) + 1) + weight
    last = len(key) - 1 - np.unique(key[::-1], return_index=True)[1]
    size = np.bincount(position[last], weight_gradient_bytes(graph)[weight[last]], minlength=len(gradients))
    is_known = np.bincount(position, minlength=len(gradients)) > 0
    return np.where(is_known, size, graph.output_bytes[gradients])


def shared_bytes(layout: Layout, producer: Ints, consumer: Ints) -> Floats:
    """(edges,) bytes of the weights that the forward ops of two gradients share; as `gradient_bytes` where unknown."""
    graph = layout.problem.graph
    edge, weight = _weights_of(graph, producer)
    other_edge, other_weight = _weights_of(graph, consumer)
    stride = len(graph.weights) + 1
    both = np.intersect1d(edge * stride + weight, other_edge * stride + other_weight)
    size = np.bincount(both // stride, weight_gradient_bytes(graph)[both % stride], minlength=len(producer))
    return np.where(size > 0, size, graph.output_bytes[producer])


def _weights_of(graph: OpGraph, ops: Ints) -> tuple[Ints, Ints]:
    """(pairs,) positions in `ops` and (pairs,) weights that the forward ops of these read; each pair once."""
    position, use = equal_pairs(graph.mirror[ops], graph.weight_uses[:, 0])
    return position, graph.weight_uses[use, 1]


def sums_over_replicas(
    updates: Updates, buckets: Buckets, *, across: bool = False
) -> Iterator[tuple[Sums, int, tuple[Ints, Ints]]]:
    """Sums over equally many members, how many servers these are on, and (sums,) the bucket and the update of each.

    It is one server, if there are not as many members on each. Members are all replicas or, where groups of them hold
    parts of weights, those of a group; or, `across` groups, those that hold the same part, of which they have the sum.
    """
    layout = updates.layout
    alike: defaultdict[tuple[int, int], list[tuple[Ints, Ints, Ints]]] = defaultdict(list)
    for stage in np.unique(buckets.stage).tolist():
        devices, mine = layout.stage_devices[stage], np.flatnonzero(buckets.stage == stage)
        parts = int(layout.parts[buckets.origin[mine[0]]])
        groups = np.arange(len(devices)).reshape(-1, parts)
        count = updates.count(stage)
        bucket, update = mine.repeat(count), np.tile(np.arange(count), len(mine))
        for team in groups.T if across else groups:
            if len(team) == 1:
                continue
            part = float(buckets.bytes[mine].max()) / (len(devices) if across else parts)
            order, server = by_server(layout.problem.cluster, [devices[each] for each in team.tolist()], part)
            on_server = np.bincount(server)
            servers = len(on_server) if (on_server == on_server[0]).all() else 1
            alike[len(team), servers].append((bucket, update, np.broadcast_to(team[order], (len(bucket), len(team)))))
    for (_, servers), rows in alike.items():
        bucket, update, replica = (np.concatenate(column) for column in zip(*rows, strict=True))
        stage = buckets.stage[bucket]
        sums = Sums(
            layout.device_of[stage[:, None], replica], replica,
            updates.micro_batch(stage[:, None], update[:, None], replica), buckets.origin[bucket], stage,
            buckets.bytes[bucket] / (layout.parts[buckets.origin[bucket]] if across else 1.0),
        )  # fmt: skip
        yield sums, servers, (bucket, update)
