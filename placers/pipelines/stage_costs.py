"""StageCosts: what stages cost on devices of each kind, for compiled code.

Seconds of a layer for a part of the batch are taken to be a fixed part and one in proportion to it, through two parts
that are costed exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from envs.costs.costs import costs_of
from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers, sums_before
from graphs.algorithms.pairs import distinct_pairs
from graphs.op_graph import Bools, Floats, Ints, Phase

PARTS = (1 / 4, 1 / 32)  # of the batch; ours: what devices of a pipeline usually compute at a time


class StageCosts(NamedTuple):
    """What layers cost; seconds and bytes are sums over the layers before each, of what passes by (first, end)."""

    forward: Floats  # (kinds, layers + 1) seconds of the whole batch, which are shared out
    forward_fixed: Floats  # seconds of each part of it, however small
    backward: Floats
    backward_fixed: Floats
    update: Floats  # seconds of a step
    weights: Floats  # (layers + 1,) bytes of gradients
    held: Floats  # bytes of weights and what belongs to them
    kept: Floats  # bytes of outputs that wait for the backward pass, of the whole batch
    entering: Floats  # (layers + 1, layers + 1) bytes that a stage of such layers reads of earlier ones
    leaving: Floats  # (layers + 1, layers + 1) bytes of gradients that earlier ones read of it
    borders: Floats  # (layers + 1,) bytes that enter the blocks that begin before each layer
    inside: Floats  # (layers + 1, layers + 1) bytes that the fullest block of such layers keeps


@dataclass(frozen=True, eq=False)
class Devices:
    """Devices that a planner may use, and which of them are alike."""

    kind: Ints  # (devices,) of the cluster; devices of a kind take the same times and have the same memory
    seconds: Floats  # (devices,) of the whole step on each
    strength: Floats  # (kinds,) what each does in the same time, the fastest 1
    memory_bytes: Floats  # (devices,)
    used: tuple[int, ...]  # those that may be used


def stage_costs(grain: LayerGrain, used: Sequence[int]) -> tuple[StageCosts, Devices]:
    """The costs of a problem's layers on the kinds of its devices, and the devices."""
    cluster, layers = grain.problem.cluster, grain.layers
    of_step = _seconds(grain, 1.0)
    columns = np.concatenate([of_step.reshape(-1, len(cluster)), cluster.memory_bytes[None]]).T
    first, kind = np.unique(columns, axis=0, return_index=True, return_inverse=True)[1:]
    larger, smaller = (_seconds(grain, part)[:, :, first] for part in PARTS)
    slope = np.clip((larger - smaller) / (PARTS[0] - PARTS[1]), 0.0, None)
    fixed = np.clip(smaller - slope * PARTS[1], 0.0, None)

    def before(values: Floats) -> Floats:
        """Sums over the layers before each; `values` are (layers, ...)."""
        return np.ascontiguousarray(np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)]).T)

    costs = StageCosts(
        before(slope[0]), before(fixed[0]), before(slope[1]), before(fixed[1]), before(of_step[2][:, first]),
        before(layers.weights), before(layers.held), before(layers.kept),
        *(passing := _passing(grain)), *_of_blocks(layers, passing[0]),
    )  # fmt: skip
    seconds = of_step.sum(axis=(0, 1))
    of_kind = np.maximum(seconds[first], 1e-30)
    return costs, Devices(kind.ravel(), seconds, of_kind.min() / of_kind, cluster.memory_bytes, tuple(used))


def kinds_of(devices: Devices, several: Sequence[int]) -> Bools:
    """(kinds,) whether each is among some devices."""
    return np.asarray(np.bincount(devices.kind[list(several)], minlength=int(devices.kind.max()) + 1) > 0)


def shares_of_kinds(devices: Devices, several: Sequence[int]) -> Floats:
    """(kinds,) the share of a micro-batch that a device of each kind computes, by speed, among some devices."""
    return np.asarray(devices.strength / devices.strength[devices.kind[list(several)]].sum())


def _seconds(grain: LayerGrain, share: float) -> Floats:
    """(3, layers, devices) seconds of a share of the batch: of each layer forward, backward, and for its update."""
    part = grain.part(share)
    graph = part.graph
    busy = costs_of(part).busy_seconds(part)
    found = np.zeros((3, len(grain.layers), busy.shape[1]))
    np.add.at(found, (np.minimum(graph.phase, Phase.UPDATE), grain.layer), busy)
    return found


def _passing(grain: LayerGrain) -> tuple[Floats, Floats]:
    """(layers + 1, layers + 1) bytes that enter the layers from one to before another from those before, and back.

    An output that several layers of a stage read passes once.
    """
    graph, layer, count = grain.coarse.graph, grain.layer, len(grain.layers)
    producer, consumer = graph.edges[~graph.control].T
    first, last, phase = layer[producer], layer[consumer], graph.phase[producer]
    is_sum = np.array([kind.startswith("sum") for kind in graph.kinds])[producer]  # of gradients, once per step
    there = (first < last) & (phase == Phase.FORWARD)
    back = (first > last) & (phase == Phase.BACKWARD) & ~is_sum
    # there: of each output those of its readers count that are the first in the stage
    reads = distinct_pairs(np.column_stack([producer[there], last[there]]))[0]
    output, reader = reads.T
    again = np.diff(output, prepend=-1) == 0
    before = np.where(again, np.concatenate([[-1], reader[:-1]])[: len(reader)], layer[output])
    entering = _table(count, before, reader, graph.moved_bytes[output])
    # back: each reader is taken to be in a stage of its own
    output, reader = distinct_pairs(np.column_stack([producer[back], last[back]]))[0].T
    return entering, _table(count, reader, layer[output], graph.moved_bytes[output])


def _of_blocks(layers: Layers, entering: Floats) -> tuple[Floats, Floats]:
    """(layers + 1,) and (layers + 1, layers + 1) `borders` and `inside` of `StageCosts`."""
    count, kept = len(layers), sums_before(layers.kept)
    first, inside = np.arange(count + 1), np.zeros((count + 1, count + 1))
    for end, begin in enumerate(layers.begin.tolist(), start=1):  # of the block of the last layer, and of those before
        inside[:end, end] = np.maximum(kept[end] - kept[np.maximum(first[:end], begin)], inside[:end, begin])
    begins = layers.begin == first[:-1]
    ends = np.append(np.flatnonzero(begins)[1:], count)
    entered = np.zeros(count)
    entered[begins] = entering[np.flatnonzero(begins), ends]
    return sums_before(entered), inside


def _table(count: int, before: Ints, inside: Ints, size: Floats) -> Floats:
    """(first, end) the sums of those sizes, (n,), for which before < first <= inside < end."""
    change = np.zeros((count + 2, count + 1))
    np.add.at(change, (before + 1, inside + 1), size)
    np.add.at(change, (inside + 1, inside + 1), -size)
    return np.ascontiguousarray(np.maximum(np.cumsum(np.cumsum(change, axis=0)[:-1], axis=1), 0.0))
