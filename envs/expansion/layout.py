"""Layout: on which devices the copies of each op are, and how they are numbered.

    op        0              1              2              update of 1
    copies    0.0 0.1 1.0 1.1   ...                        of each replica one
              m.r: micro-batch m on replica r

Copies of an op are consecutive, by micro-batch and then by replica. With replicas that take turns, an op has one copy
for each micro-batch, on the replica whose turn it is. One micro-batch without replicas gives the graph's own numbers.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.plans.mesh import length, mesh_of
from envs.plans.plan import Plan
from envs.plans.schedule import AllReduce
from envs.plans.stages import stages_of
from graphs.algorithms.pairs import ranges
from graphs.descriptions.descriptions import descriptions_of
from graphs.op_graph import Bools, Floats, Ints, Phase
from graphs.op_graph.weight_memory import weight_gradients
from graphs.problem import Problem
from graphs.transforms.batch import grows


@dataclass(frozen=True, eq=False)
class Layout:
    """What a plan says of each op and of each copy. The plan has been checked (`Plan.check`)."""

    problem: Problem
    plan: Plan

    @property
    def micro_batches(self) -> int:
        """How many there are."""
        return self.plan.schedule.micro_batches

    @property
    def all_reduce(self) -> AllReduce:
        """How replicas, and shards, sum up: as the plan says or, if it does not, as the problem does."""
        return self.plan.schedule.all_reduce or self.problem.all_reduce

    @property
    def bucket_bytes(self) -> float:
        """How many bytes of gradients are summed up together: as the plan says, or all if the runtime waits for all."""
        return self.plan.schedule.bucket_bytes if self.problem.runtime.overlap else np.inf

    @cached_property
    def stage(self) -> Ints:
        """(ops,) the stage of each op."""
        return stages_of(self.problem.graph, self.plan.devices, self.plan.schedule.stages)

    @cached_property
    def stage_devices(self) -> tuple[tuple[int, ...], ...]:
        """Of each stage the devices of its replicas."""
        first = np.unique(self.stage, return_index=True)[1]
        return tuple(self.plan.devices[op] for op in first.tolist())

    @cached_property
    def device_of(self) -> Ints:
        """(stages, most replicas) the device of each replica of each stage, or -1."""
        widest = max(len(devices) for devices in self.stage_devices)
        rows = [[*devices, *[-1] * (widest - len(devices))] for devices in self.stage_devices]
        return np.array(rows, np.int64)

    @cached_property
    def replicas(self) -> Ints:
        """(ops,) how many replicas of each op there are."""
        return np.array([len(devices) for devices in self.plan.devices], np.int64)

    @cached_property
    def parts(self) -> Ints:
        """(ops,) how many replicas of each op hold parts of its weights between them, where they do (ZeRO)."""
        group = self.plan.schedule.shard_group
        return np.minimum(self.replicas, group) if group else self.replicas

    @cached_property
    def is_repeated(self) -> Bools:
        """(ops,) whether each op runs for every micro-batch, and not once for all of them."""
        per_step = self.problem.graph.phase >= Phase.UPDATE
        return np.asarray(~per_step | (self.plan.schedule.update == "micro_batch"))

    @cached_property
    def takes_turns(self) -> Bools:
        """(ops,) whether each micro-batch of an op is on one replica, and whole."""
        turns = self.plan.schedule.sharing == "turns"
        return np.asarray(self.is_repeated & (self.replicas > 1) & turns)

    @cached_property
    def divisions(self) -> tuple[tuple[int, ...], ...]:
        """The distinct ways to divide a micro-batch among copies of an op: how many equal parts each of them takes."""
        return tuple(dict.fromkeys(self._divisions))

    @cached_property
    def division(self) -> Ints:
        """(ops,) the number of that by which each op is divided; with replicas that take turns, it is whole."""
        number = {each: number for number, each in enumerate(self.divisions)}
        of_stage = np.array([number[each] for each in self._divisions], np.int64)
        whole = number.get((1,), 0)  # there if an op takes turns
        return np.where(self.takes_turns, whole, of_stage[self.stage])

    @cached_property
    def _divisions(self) -> list[tuple[int, ...]]:
        """(stages,) or one more, what replicas of each stage take."""
        shares = [*self.plan.schedule.shares, *[()] * len(self.stage_devices)]
        of_stage = [own or (1,) * len(devices) for own, devices in zip(shares, self.stage_devices, strict=False)]
        return [*of_stage, (1,)] if self.takes_turns.any() else of_stage

    @cached_property
    def _parts(self) -> tuple[Ints, Ints]:
        """(divisions, most replicas) how many equal parts of a micro-batch each takes, or 0; (divisions,) all."""
        parts = np.zeros((len(self.divisions), max(map(len, self.divisions))), np.int64)
        for row, each in zip(parts, self.divisions, strict=True):
            row[: len(each)] = each
        return parts, parts.sum(axis=1)

    @cached_property
    def share(self) -> Floats:
        """(copies,) the share of the batch that each computes; updates do not depend on it."""
        (parts, total), number = self._parts, self.division[self.origin]
        within = np.where(self.takes_turns[self.origin], 0, self.replica)
        of_batch = parts[number, within] / (total[number] * self.micro_batches)
        return np.where(self.problem.graph.phase[self.origin] >= Phase.UPDATE, 1.0, of_batch)

    @cached_property
    def least_share(self) -> Floats:
        """(ops,) the least share of the batch that a copy of each op computes; updates do not depend on it."""
        parts, total = self._parts
        least = (np.where(parts > 0, parts, total[:, None]).min(axis=1) / total)[self.division]
        return np.where(self.problem.graph.phase >= Phase.UPDATE, 1.0, least / self.micro_batches)

    def seen_shares(self, origin: Ints, replica: Ints) -> Floats:
        """(n,) the share of the batch that a device ever computes of an op, over all micro-batches; (n,) each."""
        if self.plan.split:
            return self._seen_of_shards[origin]
        (parts, total), number = self._parts, self.division[origin]
        of_batch = parts[number, np.maximum(replica, 0)] / total[number]
        return np.where(self.takes_turns[origin], 1.0 / self.replicas[origin], of_batch)

    @cached_property
    def _seen_of_shards(self) -> Floats:
        """(ops,) the same of ops that are divided by their indices."""
        found, described = 1.0 / self.replicas, descriptions_of(self.problem.graph)
        for op, (split, each) in enumerate(zip(self.plan.split, described, strict=True)):
            if split:
                axes = mesh_of(self.plan.mesh, int(self.replicas[op]))
                batch = "" if each is None else each.batch
                divided = [length(axis) for axis, index in zip(axes, split, strict=True) if batch and index == batch]
                found[op] = 1.0 / math.prod(divided)
        return found

    @cached_property
    def width(self) -> Ints:
        """(ops,) how many copies of each op there are for a micro-batch, or for the step."""
        return np.where(self.takes_turns, 1, self.replicas)

    @cached_property
    def count(self) -> Ints:
        """(ops,) how many copies of each op there are."""
        return self.width * np.where(self.is_repeated, self.micro_batches, 1)

    @cached_property
    def first(self) -> Ints:
        """(ops,) the number of the first copy of each op."""
        return np.cumsum(self.count) - self.count

    @cached_property
    def repeats(self) -> Bools:
        """(ops,) whether each op has copies for several micro-batches."""
        return self.is_repeated & (self.micro_batches > 1)

    @cached_property
    def grows(self) -> Bools:
        """(ops,) whether the output of each op grows with the batch, so that a replica holds a part of it."""
        return np.asarray(grows(self.problem.graph) | self.is_sparse_gradient)

    @cached_property
    def reads_all(self) -> Bools:
        """(ops,) whether each replica of an op reads what all replicas made: it does not divide the batch."""
        return np.asarray(self.problem.graph.phase >= Phase.UPDATE)

    def nearest(self, producer: int, consumer: int) -> Ints:
        """(copies of the consumer in a micro-batch,) for each the copy of the producer on its device, or as far along.

        That is the copy to read if they all hold the same.
        """
        width, readers = int(self.width[producer]), int(self.width[consumer])
        as_far = [reader * width // readers for reader in range(readers)]
        if width == 1 or readers != self.replicas[consumer]:
            return np.array(as_far, np.int64)
        devices = self.plan.devices[producer]
        of_reader = zip(self.plan.devices[consumer], as_far, strict=True)
        return np.array([devices.index(on) if on in devices else number for on, number in of_reader], np.int64)

    # ---- edges of the given graph ----------------------------------------------------------------------------------

    @cached_property
    def is_weight_gradient(self) -> Bools:
        """(ops,) whether the output of each op is a gradient of weights, or a sum of such: it does not grow with M."""
        return weight_gradients(self.problem.graph)

    @cached_property
    def is_sparse_gradient(self) -> Bools:
        """(ops,) whether each computes a gradient that holds only the rows of tables that were read.

        It is not summed up in place.
        """
        graph = self.problem.graph
        op, weight = graph.weight_uses.T
        is_sparse = graph.has_sparse_gradient[weight]
        reads = (np.bincount(op[these], minlength=len(graph)) > 0 for these in (is_sparse, ~is_sparse))
        sparse, dense = (of_op[graph.mirror] & (graph.mirror >= 0) for of_op in reads)
        return np.asarray((graph.phase == Phase.BACKWARD) & sparse & ~dense)

    @cached_property
    def is_summed(self) -> Bools:
        """(edges,) whether what an edge carries is first summed up over micro-batches and replicas.

        That is a gradient of weights on its way to an update, or to another stage, where it is added to that of a
        weight that the stages share. Profiles of layers have backward ops whose output is the gradient of the input,
        and which updates wait for: these too. One micro-batch without replicas leaves nothing to sum up.
        """
        graph, (producer, consumer) = self.problem.graph, self.problem.graph.edges.T
        is_updated = (graph.phase[producer] == Phase.BACKWARD) & (graph.phase[consumer] >= Phase.UPDATE)
        is_passed_on = self.is_weight_gradient[producer] & (self.stage[producer] != self.stage[consumer])
        is_passed_on &= ~self.is_sparse_gradient[producer]
        several = self.micro_batches > 1 or int(self.replicas.max()) > 1
        return np.asarray((is_updated | is_passed_on) & several & ~graph.control)

    # ---- copies --------------------------------------------------------------------------------------------------

    @cached_property
    def origin(self) -> Ints:
        """(copies,) the op that each is a copy of."""
        return np.repeat(np.arange(len(self.count)), self.count)

    def copies_of(self, ops: Ints) -> tuple[Ints, Ints]:
        """(copies,) positions in `ops`, and (copies,) the copies of these: those of the first, of the second, ..."""
        return np.repeat(np.arange(len(ops)), self.count[ops]), ranges(self.first[ops], self.count[ops])

    @cached_property
    def micro_batch(self) -> Ints:
        """(copies,) the micro-batch of each, or -1 for those of the step."""
        number = (np.arange(len(self.origin)) - self.first[self.origin]) // self.width[self.origin]
        return np.where(self.is_repeated[self.origin], number, -1)

    @cached_property
    def replica(self) -> Ints:
        """(copies,) the replica that each is on."""
        within = (np.arange(len(self.origin)) - self.first[self.origin]) % self.width[self.origin]
        return np.where(self.takes_turns[self.origin], self.micro_batch % self.replicas[self.origin], within)

    @cached_property
    def device(self) -> Ints:
        """(copies,) the device that each is on."""
        return np.where(self.is_offloaded, self.updated_on[self.replica_device], self.replica_device)

    @cached_property
    def replica_device(self) -> Ints:
        """(copies,) the device of the replica that each is of."""
        return np.asarray(self.device_of[self.stage[self.origin], self.replica])

    @cached_property
    def updated_on(self) -> Ints:
        """(devices,) where the weights of each are updated."""
        cluster = self.problem.cluster
        return cluster.nearest_cpu if self.plan.schedule.offload else np.arange(len(cluster))

    @cached_property
    def is_offloaded(self) -> Bools:
        """(copies,) whether each is an update that runs on another device than its replica's, on a CPU."""
        device = self.replica_device
        is_update = self.problem.graph.phase[self.origin] == Phase.UPDATE
        return np.asarray(is_update & (self.updated_on[device] != device))
