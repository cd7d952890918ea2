"""Lowering: a placement becomes tasks over devices and channels, with what they wait for and the memory they hold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from envs.compiled import compiled, inlined
from graphs.op_graph import Bools, Floats, Ints
from graphs.problem import Problem


class Blueprint(NamedTuple):
    """What all placements of a problem share."""

    unit: Ints  # (ops,) unit of each op
    out_start: Ints  # (ops + 1,) the out-edges of each op, in the three arrays below
    consumer: Ints  # (edges,) op
    control: Bools  # (edges,)
    priority: Floats  # (ops,) the smaller goes first
    op_seconds: Floats  # (ops, devices)
    output_bytes: Floats  # (ops,)
    launch_seconds: Floats  # (devices,)
    latency: Floats  # (devices, devices) seconds
    bandwidth: Floats  # (devices, devices) bytes/s
    channel: Ints  # (devices, devices)
    gap: Floats  # (channels,) seconds
    multicast: Bools  # (channels,)
    use_start: Ints  # (weights + 1,) the uses of each weight, in `user`
    user: Ints  # (uses,) op
    weight_bytes: Floats  # (weights,) with gradient and optimizer state

    @classmethod
    def of(cls, problem: Problem, op_seconds: Floats, priority: Floats) -> Blueprint:
        """Arrays of a problem, in the order in which the lowering reads them."""
        graph, cluster = problem.graph, problem.cluster
        out_start, by_producer = graph.successors
        uses = graph.weight_uses[np.argsort(graph.weight_uses[:, 1], kind="stable")]
        use_start = np.zeros(len(graph.weights) + 1, np.int64)
        np.cumsum(np.bincount(uses[:, 1], minlength=len(graph.weights)), out=use_start[1:])
        return cls(
            unit=np.array(graph.units),
            out_start=np.array(out_start),
            consumer=graph.edges[by_producer, 1],
            control=graph.control[by_producer],
            priority=np.array(priority),
            op_seconds=np.array(op_seconds, order="C"),
            output_bytes=np.array(graph.output_bytes),
            launch_seconds=cluster.launch_seconds,
            latency=np.array(cluster.latency, order="C"),
            bandwidth=np.array(cluster.bandwidth, order="C"),
            channel=np.array(cluster.channel, order="C"),
            gap=np.array(cluster.gap, np.float64),
            multicast=np.array(cluster.multicast, np.bool_),
            use_start=use_start,
            user=np.ascontiguousarray(uses[:, 0]),
            weight_bytes=graph.weights * problem.bytes_per_weight_byte,
        )


class Tasks(NamedTuple):
    """One lowered placement. Task i < ops computes op i, the others are transfers. Resource r < devices is a device.

    Tensors are indexed likewise: tensor i < ops is the output of op i, the others are its copies on other devices.
    An arc says that a task waits for another one, or reads a tensor; arcs form lists, which end with -1.
    """

    resource: Ints  # (tasks,)
    seconds: Floats  # (tasks,)
    hold: Floats  # (tasks,) seconds for which the resource stays busy after the end
    priority: Floats  # (tasks,)
    tie: Ints  # (tasks,) order among equals on one resource: by op, then by destination
    waiting: Ints  # (tasks,) how many arcs it waits for
    first_arc: Ints  # (tasks,) list of the arcs to those who wait for this task
    first_read: Ints  # (tasks,) list of the arcs of what this task reads
    first_tensor: Ints  # (tasks,) list of the tensors that this task writes
    arc_task: Ints  # (arcs,) who waits
    arc_tensor: Ints  # (arcs,) what it reads, -1 for a control edge
    next_arc: Ints  # (arcs,)
    next_read: Ints  # (arcs,)
    device: Ints  # (tensors,) where it is held
    bytes: Floats  # (tensors,)
    readers: Ints  # (tensors,) it is held until so many reads have ended
    source: Ints  # (tensors,) the task that writes it
    next_tensor: Ints  # (tensors,)
    copy_on: Ints  # (devices,) scratch: the latest tensor copied there
    sent_over: Ints  # (channels,) scratch: the latest transfer on it
    made: Ints  # (2,) number of tasks and of tensors

    @classmethod
    def room_for(cls, blueprint: Blueprint) -> Tasks:
        """Buffers for any placement."""
        ops, devices = blueprint.op_seconds.shape
        transfers = min(int((~blueprint.control).sum()), ops * (devices - 1))
        tasks, arcs = ops + transfers, len(blueprint.consumer) + transfers + ops

        def ints(size: int) -> Ints:
            return np.zeros(size, np.int64)

        return cls(
            resource=ints(tasks), seconds=np.zeros(tasks), hold=np.zeros(tasks), priority=np.zeros(tasks),
            tie=ints(tasks), waiting=ints(tasks), first_arc=ints(tasks), first_read=ints(tasks),
            first_tensor=ints(tasks), arc_task=ints(arcs), arc_tensor=ints(arcs), next_arc=ints(arcs),
            next_read=ints(arcs), device=ints(tasks), bytes=np.zeros(tasks), readers=ints(tasks), source=ints(tasks),
            next_tensor=ints(tasks), copy_on=ints(devices), sent_over=ints(len(blueprint.gap)), made=ints(2),
        )  # fmt: skip


@compiled
def lower(blueprint: Blueprint, placement: Ints, tasks: Tasks) -> None:
    """Write the tasks of a placement, (units,) devices, into the buffers."""
    ops = len(blueprint.unit)
    tasks.copy_on[:] = -1
    tasks.sent_over[:] = -1
    for op in range(ops):
        device = placement[blueprint.unit[op]]
        seconds = blueprint.op_seconds[op, device]
        hold = blueprint.launch_seconds[device] if seconds > 0 else 0.0
        _add_task(tasks, op, device, seconds, hold, blueprint.priority[op], op)
        _add_tensor(tasks, op, op, device, blueprint.output_bytes[op])
    tasks.made[:] = ops
    arcs = 0
    for op in range(ops):
        arcs = _add_arcs(blueprint, tasks, op, arcs)


@inlined
def _add_arcs(blueprint: Blueprint, tasks: Tasks, op: int, arcs: int) -> int:
    """Join an op to its consumers: on its own device directly, elsewhere through transfers, made as needed."""
    here = tasks.device[op]
    first_task, first_tensor = tasks.made
    for edge in range(blueprint.out_start[op], blueprint.out_start[op + 1]):
        consumer = blueprint.consumer[edge]
        there = tasks.device[consumer]
        tensor = op
        if blueprint.control[edge]:
            tensor = -1
        elif there != here:
            tensor = tasks.copy_on[there]
            if tensor < first_tensor:  # none of this op's yet
                tensor = tasks.made[1]
                arcs = _add_copy(blueprint, tasks, op, there, first_task, arcs)
        _add_arc(tasks, arcs, op if tensor < 0 else tasks.source[tensor], consumer, tensor)
        arcs += 1
    if tasks.readers[op] == 0:  # held until its own end
        _add_read(tasks, arcs, op, op)
        arcs += 1
    return arcs


@inlined
def _add_copy(blueprint: Blueprint, tasks: Tasks, op: int, there: int, first_task: int, arcs: int) -> int:
    """Send an op's output to another device, along with an earlier copy if the channel is a multicast one.

    A multicast transfer lasts as long as the slowest of its destinations needs.
    """
    here, size = tasks.device[op], blueprint.output_bytes[op]
    channel = blueprint.channel[here, there]
    seconds = blueprint.latency[here, there] + size / blueprint.bandwidth[here, there]
    task, tensor = tasks.made
    if blueprint.multicast[channel] and tasks.sent_over[channel] >= first_task:
        task = tasks.sent_over[channel]
        tasks.seconds[task] = max(tasks.seconds[task], seconds)
    else:
        devices = len(tasks.copy_on)
        tie = op * devices + there
        _add_task(tasks, task, devices + channel, seconds, blueprint.gap[channel], blueprint.priority[op], tie)
        _add_arc(tasks, arcs, op, task, op)
        arcs += 1
        tasks.sent_over[channel] = task
        tasks.made[0] += 1
    _add_tensor(tasks, tensor, task, there, size)
    tasks.copy_on[there] = tensor
    tasks.made[1] += 1
    return arcs


@inlined
def _add_task(tasks: Tasks, task: int, resource: int, seconds: float, hold: float, priority: float, tie: int) -> None:
    tasks.resource[task] = resource
    tasks.seconds[task] = seconds
    tasks.hold[task] = hold
    tasks.priority[task] = priority
    tasks.tie[task] = tie
    tasks.waiting[task] = 0
    tasks.first_arc[task] = tasks.first_read[task] = tasks.first_tensor[task] = -1


@inlined
def _add_tensor(tasks: Tasks, tensor: int, source: int, device: int, size: float) -> None:
    tasks.device[tensor] = device
    tasks.bytes[tensor] = size
    tasks.readers[tensor] = 0
    tasks.source[tensor] = source
    tasks.next_tensor[tensor] = tasks.first_tensor[source]
    tasks.first_tensor[source] = tensor


@inlined
def _add_arc(tasks: Tasks, arc: int, source: int, target: int, tensor: int) -> None:
    """Let the target wait for the source and, until its end, hold the tensor that it reads."""
    tasks.arc_task[arc] = target
    tasks.next_arc[arc] = tasks.first_arc[source]
    tasks.first_arc[source] = arc
    tasks.waiting[target] += 1
    if tensor >= 0:
        _add_read(tasks, arc, target, tensor)


@inlined
def _add_read(tasks: Tasks, arc: int, task: int, tensor: int) -> None:
    tasks.arc_tensor[arc] = tensor
    tasks.next_read[arc] = tasks.first_read[task]
    tasks.first_read[task] = arc
    tasks.readers[tensor] += 1


@compiled
def static_bytes(blueprint: Blueprint, placement: Ints, seen: Ints, total: Floats) -> None:
    """Write, per device, the bytes of the distinct weights of the ops there, gradients and optimizer state included.

    `seen`, (devices,), is scratch.
    """
    total[:] = 0.0
    seen[:] = -1
    for weight in range(len(blueprint.weight_bytes)):
        for use in range(blueprint.use_start[weight], blueprint.use_start[weight + 1]):
            device = placement[blueprint.unit[blueprint.user[use]]]
            if seen[device] != weight:
                seen[device] = weight
                total[device] += blueprint.weight_bytes[weight]
