"""Costs of a divided stage, taken from the first shard of each replica; the other shards are symmetric.

A divided stage is one device for each replica, as an undivided one is, and its collectives are work of that device:

    seconds      of an op: by how much it makes a step of the replica longer, on its shards alone and op by op in the
                 engine. That is computing, and waiting for what shards exchange, unless other ops fill the time.
    output       the part of it that the shard makes, or the larger one that it keeps for its backward pass
    weights      the parts that it stores
    is sent      the part that a shard of the reader needs, instead of all of what the op makes
    gradients    of its weights are summed up over replicas: each shard those of its own parts, or all shards together
                 where each has made a partial sum of the same

What is sent between stages, and sums of gradients over replicas, does not delay what shards of a stage exchange then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from envs.expansion.expand import expand
from envs.expansion.expanded import Expansion, Role
from envs.expansion.layout import Layout
from envs.expansion.shards.boxes import volume
from envs.expansion.shards.divided import needs
from envs.expansion.shards.shards import UNKNOWN, Partition
from envs.expansion.shards.stored_weights import StoredWeights
from envs.expansion.shares import shared
from envs.plans.mesh import Mesh, Split
from envs.plans.plan import Plan
from envs.plans.schedule import WHOLE_BATCH, AllReduceOrDefault, Schedule
from envs.simulation.simulator import Simulator
from graphs.descriptions.descriptions import descriptions_of
from graphs.foundation.errors import InputError
from graphs.notation.described import Described, of_part
from graphs.notation.operator import Operator
from graphs.notation.ranges import elements
from graphs.op_graph import RESIDENT, Bools, Floats, Ints, Phase
from graphs.problem import Problem


@dataclass(frozen=True, eq=False)
class FirstShard:
    """What one of the shards of a replica does."""

    problem: Problem  # of its part of the batch
    made: Floats  # (ops,) the share of its output that it makes
    adding: Floats  # (ops,) of gradients of weights, how many shards have a partial sum of what this one makes

    @classmethod
    def of(
        cls,
        problem: Problem,
        split: tuple[Split, ...],
        axes: Mesh,
        devices: tuple[int, ...],
        parts: int,
        block: Ints,
        all_reduce: AllReduceOrDefault = WHOLE_BATCH.all_reduce,
    ) -> FirstShard:
        """The first of the shards on these devices, of one of `parts` equal parts of the batch.

        `split`, (ops,), says what ops divide along the axes. What is sent is between different blocks, (ops,). Raises
        InputError for a split that is none of the ops, and if the parts do not divide the batch.
        """
        part = _part(problem, parts)
        graph = part.graph
        plan = Plan((devices,) * len(graph), schedule=Schedule(all_reduce=all_reduce), split=split, mesh=axes)
        written = expand(part, plan)
        partition = Partition(Layout(part, plan))
        stored = StoredWeights(partition)
        boxes = [of.get(devices[0], ()) for of in stored.by_device]
        own = [
            volume(each) / max(elements(box), 1) if each else 0.0 for each, box in zip(boxes, stored.shape, strict=True)
        ]
        producer, consumer = graph.phase[graph.edges].T
        is_kept = (producer == Phase.FORWARD) & (consumer == Phase.BACKWARD)
        crosses = block[graph.edges[:, 0]] != block[graph.edges[:, 1]]
        made, sent = _made(partition), _needed(partition, crosses)
        seen = replace(
            graph,
            output_bytes=graph.output_bytes * np.maximum(made, _needed(partition, is_kept)),
            transfer_bytes=graph.output_bytes * np.where(sent > 0, sent, 1.0),
            **{key: getattr(graph, key) * made for key in RESIDENT if len(getattr(graph, key))},
            weights=graph.weights * np.array(own),
            batch_law=None,
        )
        seconds = np.repeat(_seconds(written, devices[0])[:, None], len(problem.cluster), axis=1)
        memory = part.weight_memory.of_parts(np.arange(len(own)), np.array(own))
        return cls(replace(part, graph=seen, op_seconds=seconds, memory=memory), made, _adding(partition))


def _part(problem: Problem, parts: int) -> Problem:
    """The problem of one of so many parts of the batch, its ops described."""
    found, known = list[Described | None](), dict[tuple[int, str], Operator | None]()
    for op, each in enumerate(descriptions_of(problem.graph)):
        if each is None:
            found.append(None)
            continue
        key = id(each.operator), each.batch  # ops that are alike share their operator: what is computed of it is kept
        if key not in known:
            known[key] = of_part(each.operator, each.batch, 1, parts)
        operator = known[key]
        if operator is None:
            raise InputError(
                f"op {problem.graph.names[op]!r} has {each.operator.sizes[each.batch]} values of its batch "
                f"{each.batch!r}, which {parts} parts do not divide; take fewer micro-batches or replicas"
            )
        found.append(replace(each, operator=operator))
    part = shared(problem, 1.0 / parts)
    return replace(part, graph=replace(part.graph, described=tuple(found)))


def _seconds(written: Expansion, device: int) -> Floats:
    """(ops,) by how much each op makes the step longer, without the launch that follows it.

    Ops in the order in which their last shards end; what is less than a launch counts for the next one.
    """
    timeline = Simulator(written.problem, order=written.order).timeline(written.placement)
    work = np.flatnonzero(written.role == Role.WORK)
    end = np.zeros(len(written.given.graph))
    np.maximum.at(end, written.origin[work], timeline.finish[work])
    launch = float(written.problem.hold_seconds[device])
    order = np.argsort(end, kind="stable")
    found, before = np.zeros(len(end)), 0.0
    for op, now in zip(order.tolist(), end[order].tolist(), strict=True):
        if now - before > launch:
            found[op] = now - before - launch
            before = now
    return found


def _made(partition: Partition) -> Floats:
    """(ops,) the share of its output that the first shard makes; all, where that is not known."""
    found = np.ones(len(partition.shards))
    for op, shards in enumerate(partition.shards):
        total = sum(map(elements, shards.whole))
        if total:
            found[op] = sum(elements(boxes[0]) for boxes in shards.made) / total
    return found


def _needed(partition: Partition, which: Bools) -> Floats:
    """(ops,) the largest share of its output that the first shard of a reader needs, by some edges, (edges,); or 0."""
    graph = partition.layout.problem.graph
    found = np.zeros(len(graph))
    for op, reader in graph.edges[which & ~graph.control].tolist():
        for result, number in needs(partition, op, reader):
            whole = partition.shards[op].whole[result]
            share = 1.0
            if number >= 0 and whole != UNKNOWN:
                share = elements(partition.shards[reader].read[number][0]) / max(elements(whole), 1)
            found[op] = max(found[op], min(share, 1.0))
    return found


def _adding(partition: Partition) -> Floats:
    """(ops,) of gradients of weights, how many shards have a partial sum of what the first one makes."""
    found = np.ones(len(partition.shards))
    for op in np.flatnonzero(partition.layout.is_weight_gradient).tolist():
        members = [len(group) for groups in partition.shards[op].groups for group in groups if 0 in group]
        found[op] = max(members, default=1)
    return found
