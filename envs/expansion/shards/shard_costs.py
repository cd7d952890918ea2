"""Costs of shards: FLOPs by their part of the iteration space, bytes by the boxes that they read and make.

An op that is divided by n along an index that one of its inputs does not have reads that input n times in all: so
FLOPs are divided by n, and bytes by less. An op without a description costs each shard what it costs undivided.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from envs.expansion.draft import Columns
from envs.expansion.shards.shards import Partition, Shards
from envs.expansion.shards.stored_weights import StoredWeights
from envs.expansion.shares import costing, kinds_of_devices
from graphs.notation.described import Described
from graphs.notation.ranges import elements
from graphs.op_graph import RESIDENT, Floats, Ints
from graphs.op_graph.weight_memory import WeightMemory

FLOPS, BYTES, OUTPUT = range(3)

_MORE = 1 + 1e-6  # than the bytes that an op accesses: it does not read all of what it reads from
_KEPT = 1 << 14  # shares of shards: a search expands the same ones again and again


@dataclass(frozen=True, eq=False)
class ShardCosts:
    """What the shards of a layout cost (`envs.expansion.draft.Divided`)."""

    partition: Partition
    stored: StoredWeights

    def fill(self, origin: Ints, shard: Ints, work: Ints, amounts: Columns, op_seconds: Floats) -> None:
        """Write what ops cost, in FLOP, bytes and seconds, at the positions `work`, (work,)."""
        share, seconds = self._shares, self._seconds
        graph = self.partition.whole_ops.graph
        origin, shard = origin.astype(np.int64), shard.astype(np.int64)
        for number, key in enumerate(("flops", "bytes_accessed", "output_bytes")):
            amounts[key][work] = getattr(graph, key)[origin] * share[shard, number, origin]
        amounts["sent_bytes"][work] = amounts["output_bytes"][work]
        for key in RESIDENT:
            amounts[key][work] *= share[shard, OUTPUT, origin]
        op_seconds[work] = seconds[shard, origin]

    def weights(self, origin: Ints, device: Ints, work: Ints) -> tuple[Floats, WeightMemory, Ints, Ints]:
        """As `Divided.weights`; a device has the same share of a weight and of what belongs to it."""
        stored, uses, parts = self.stored.pieces(origin, device, work)
        return stored, self.partition.layout.problem.weight_memory.of_parts(parts, stored), uses, parts

    @cached_property
    def _shares(self) -> Floats:
        """(most shards, amounts, ops) of what an op costs for a micro-batch, what each shard costs."""
        most = max(map(len, self.partition.shards))
        found = np.ones((most, 3, len(self.partition.shards)))
        for op, shards in enumerate(self.partition.shards):
            given = self.partition.described[op]
            if given is None:
                continue
            sizes = tuple(self._read_sizes(op, given))
            found[: len(shards), :, op] = _shares_of(shards, sizes, self.partition.element_bytes[op])
        return found

    def _read_sizes(self, op: int, described: Described) -> list[float]:
        """(reads,) bytes of an element of each read; 0 for a table in which few rows are looked up."""
        weights, found = self.partition.layout.problem.graph.weights, []
        for source, access in zip(described.sources, described.operator.reads, strict=True):
            if source is None:
                found.append(0.0)
            elif source.op >= 0:
                found.append(self.partition.element_bytes[source.op])
            else:
                found.append(float(weights[source.weight]) / max(math.prod(access.shape), 1))
        reads, written = (
            described.operator.reads,
            sum(math.prod(each.shape) for each in described.operator.writes),
        )
        sizes = [math.prod(access.shape) * size for access, size in zip(reads, found, strict=True)]
        total = sum(sizes) + written * self.partition.element_bytes[op]
        if total > _MORE * self.partition.layout.problem.graph.bytes_accessed[op]:
            tables = [number for number, source in enumerate(described.sources) if source is not None and source.op < 0]
            if tables:
                found[max(tables, key=lambda number: sizes[number])] = 0.0
        return found

    @cached_property
    def _seconds(self) -> NDArray[np.float64]:
        """(most shards, ops, kinds of devices)."""
        layout, graph, share = self.partition.layout, self.partition.whole_ops.graph, self._shares
        batches = np.where(layout.is_repeated, layout.micro_batches, 1)
        found = np.empty((len(share), len(graph), kinds_of_devices(layout.problem)))
        alike: dict[bytes, int] = {}
        for shard, of_ops in enumerate(share):
            same = alike.setdefault(of_ops.tobytes(), shard)
            if same < shard:
                found[shard] = found[same]
                continue
            part = replace(
                graph,
                flops=graph.flops * of_ops[FLOPS],
                bytes_accessed=graph.bytes_accessed * of_ops[BYTES],
                output_bytes=graph.output_bytes * of_ops[OUTPUT],
                batch_law=None,
            )
            seconds = costing(layout.problem, part, of_ops[FLOPS] / batches).op_seconds
            assert seconds is not None
            found[shard] = seconds[:, : found.shape[2]]
        return found


@lru_cache(_KEPT)
def _shares_of(shards: Shards, sizes: tuple[float, ...], written: float) -> Floats:
    """(shards, amounts) the share of an op's costs of each shard; `sizes`, (reads,), are bytes of an element."""
    operator = shards.operator
    assert operator is not None
    accesses = [(access, size) for access, size in zip(operator.reads, sizes, strict=True)]
    total = sum(math.prod(access.shape) * size for access, size in accesses)
    made = [sum(elements(boxes[shard]) for boxes in shards.made) for shard in range(len(shards))]
    all_made = sum(map(elements, shards.whole))
    total += all_made * written
    found = np.empty((len(shards), 3))
    for shard, part in enumerate(shards.part):
        moved = made[shard] * written
        moved += sum(elements(boxes[shard]) * size for boxes, size in zip(shards.read, sizes, strict=True))
        output = made[shard] / all_made if all_made else part
        found[shard] = part, moved / total if total else part, output
    return found
