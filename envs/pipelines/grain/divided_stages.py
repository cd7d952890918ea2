"""Divided stages at the grain of stages: one device for each replica, the first of its shards.

    stage 0   devices 0 1 | 2 3      two replicas of two shards      simulated on 0 and 2
    stage 1   devices 4 5 6 7        one replica of four shards      simulated on 4

What an op takes and holds there is what the first shard does (`envs.pipelines.grain.first_shard`). The other shards
send and receive as much as the first one; where they do so through the same channel, as the network card of a server,
what is sent is that many times as large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from envs.expansion.servers import by_server
from envs.pipelines.grain.first_shard import FirstShard
from envs.pipelines.grain.stage_grain import PARTS, SUM, StageGrain
from graphs.cluster import FREE, Cluster
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats, Ints
from graphs.problem import Problem


class Replicas(NamedTuple):
    """The devices of a stage: replica by replica, the shards of each in order."""

    devices: tuple[int, ...]
    shards: int = 1

    @property
    def leads(self) -> tuple[int, ...]:
        """The first shard of each replica."""
        return self.devices[:: self.shards]


@dataclass(frozen=True, eq=False)
class StageShare:
    """What the first shards of a stage do of all coarse ops, for their share of the batch."""

    problem: Problem
    made: Floats  # (ops,) bytes of gradients of weights that a first shard makes
    alone: Floats  # (ops,) each of these over the number of shards that add it up together

    @classmethod
    def of(cls, shard: FirstShard, undivided: StageGrain) -> StageShare:
        """At the same grain as the undivided problem."""
        plan = undivided.plan
        made, alone = (
            StageGrain(undivided.problem, plan, summed=share).coarse.graph.output_bytes
            for share in (shard.made, shard.made / shard.adding)
        )
        return cls(StageGrain(shard.problem, plan).coarse, made, alone)


@dataclass(frozen=True, eq=False)
class DividedStages:
    """A problem at the grain of stages, or of layers, for a plan some of whose stages are divided."""

    coarse: Problem  # undivided; its last ops are parcels, which pass between stages, or layers
    parcels: int
    stage: Ints  # (ops,) the stage of each
    replicas: tuple[Replicas, ...]  # of each stage
    micro_batches: int
    whole: Callable[[float], Problem]  # the coarse problem of a share of the batch
    seen: tuple[StageShare | None, ...]  # of each stage that is divided

    def __post_init__(self) -> None:
        """Raise InputError for stages on the same devices that are not divided alike."""
        shards: dict[int, int] = {}
        for each in self.replicas:
            for device in each.devices:
                if shards.setdefault(device, each.shards) != each.shards:
                    raise InputError(
                        f"device {device} is one of {each.shards} shards of a stage, and of {shards[device]} of "
                        "another one; divide stages alike that are on the same devices, or time the plan op by op"
                    )

    def part(self, share: float) -> Problem:
        """What is done for a share of the batch; divided stages do what they do for theirs."""
        base = self.whole(share)
        assert base.op_seconds is not None
        seconds, output = base.op_seconds.copy(), base.graph.output_bytes.copy()
        needed, crowded = self._passing
        for number, seen in enumerate(self.seen):
            if seen is None:
                continue
            assert seen.problem.op_seconds is not None
            mine = self.stage == number
            staying, sums = mine & (needed == 0), mine & self._is_sum
            seconds[mine], output[staying] = seen.problem.op_seconds[mine], seen.problem.graph.output_bytes[staying]
            output[sums] = self._summed(number, seen)[sums]
        output = np.where(needed > 0, output * needed, output)
        stored = self._stored
        graph = replace(
            base.graph, output_bytes=output, transfer_bytes=output * crowded, weights=base.graph.weights * stored
        )
        memory = base.weight_memory.of_parts(np.arange(len(stored)), stored)
        return replace(base, graph=graph, op_seconds=seconds, memory=memory)

    @property
    def _is_parcel(self) -> Bools:
        return np.arange(len(self.stage)) >= len(self.stage) - self.parcels

    @property
    def _is_sum(self) -> Bools:
        kinds = self.coarse.graph.kinds
        return np.array([kind.startswith(PARTS[SUM]) for kind in kinds]) & ~self._is_parcel

    def _own(self, stage: int) -> Problem:
        """The coarse problem of a replica's share of the batch."""
        return self.whole(1.0 / (self.micro_batches * len(self.replicas[stage].leads)))

    @cached_property
    def _passing(self) -> tuple[Floats, Floats]:
        """(ops,) the share of a parcel that first shards read, and how many times as much passes the same channel.

        0 for what does not leave its stage.
        """
        graph = self.coarse.graph
        needed, crowded = np.zeros((2, len(self.stage)))
        shares: dict[int, Floats] = {}
        producer, consumer = graph.edges[~graph.control].T
        crossing = self._is_parcel[producer] & (self.stage[producer] != self.stage[consumer])
        for op, reader in zip(producer[crossing].tolist(), consumer[crossing].tolist(), strict=True):
            source, target = int(self.stage[op]), int(self.stage[reader])
            if target not in shares:
                shares[target] = self._read_by(target)
            needed[op] = max(needed[op], shares[target][op])
            crowded[op] = max(crowded[op], self._crowded(source, target))
        return needed, np.where(crowded > 0, crowded, 1.0)

    def _read_by(self, stage: int) -> Floats:
        """(ops,) the share of each parcel that a first shard of a stage reads."""
        seen = self.seen[stage]
        if seen is None:
            return np.ones(len(self.stage))
        own = self._own(stage).graph.output_bytes
        return np.where(own > 0, np.minimum(seen.problem.graph.moved_bytes / np.where(own > 0, own, 1.0), 1.0), 1.0)

    @cached_property
    def _stored(self) -> Floats:
        """(weights,) the share of each that a device stores."""
        graph = self.coarse.graph
        share = np.zeros(len(graph.weights))
        op, weight = graph.weight_uses.T
        for number in np.unique(self.stage[op]).tolist():
            used, seen = weight[self.stage[op] == number], self.seen[number]
            held = graph.weights[used] if seen is None else seen.problem.graph.weights[used]
            np.maximum.at(share, used, held / np.maximum(graph.weights[used], 1e-9))
        return share

    def _crowded(self, source: int, target: int) -> float:
        """Through how many shards of a replica the channel from the first shard of another stage leads."""
        one, other = self.replicas[source], self.replicas[target]
        senders, receivers = one.devices[: one.shards], other.devices[: other.shards]
        return _alike(self.coarse.cluster, [(senders[place % len(senders)], to) for place, to in enumerate(receivers)])

    def _summed(self, stage: int, seen: StageShare) -> Floats:
        """(ops,) bytes of gradients that sums over replicas are of, as they pass the channel of a first shard.

        Of the shards' rings, one for each if they do not add up together, several may pass it. Where g shards add up
        together, the ring of R g members sends 2 (R g - 1) / (R g) of the bytes, where one of R sends 2 (R - 1) / R.
        """
        count = len(self.replicas[stage].leads)
        if count == 1:
            return seen.made
        alone = np.where(seen.made > 0, seen.alone / np.where(seen.made > 0, seen.made, 1.0), 1.0)
        rings = np.maximum(self._rings(stage) * alone, 1.0)
        return np.asarray(seen.made * rings * (count - alone) / (count - 1))

    def _rings(self, stage: int) -> float:
        """How many rings over replicas pass through the same channel as that of the first shards."""
        replicas = self.replicas[stage]
        order = by_server(self.coarse.cluster, replicas.leads)[0].tolist()
        groups = [replicas.devices[place * replicas.shards : (place + 1) * replicas.shards] for place in order]
        return max(
            _alike(self.coarse.cluster, list(zip(one, other, strict=True)))
            for one, other in pairwise([*groups, groups[0]])
        )


def _alike(cluster: Cluster, pairs: Sequence[tuple[int, int]]) -> float:
    """How many of these transfers pass through the channel of the first."""
    channels = [int(cluster.channel[source, target]) for source, target in pairs if source != target]
    return float(channels.count(channels[0])) if channels and channels[0] != FREE else 1.0
