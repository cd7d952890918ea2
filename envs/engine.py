"""The engine: the only event loop. It times ops and transfers over serial resources, and follows the memory they hold.

Rules 1 to 4 and 6 of the simulator: a resource runs one task at a time and is held a while after it; its queue is
ordered by (priority, ready time, op, destination); all ends of an instant are applied before anything starts at it.

Resource r < devices is a device, the others are channels. Task i < ops computes op i; the others are transfers, made
when their producer ends. Tensors are numbered likewise: tensor i < ops is the output of op i, the others are copies.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from envs.compiled import compiled, inlined
from envs.lowering import Blueprint, Indices, static_bytes
from envs.queues import NONE, Queues, pop_ready, push_event, push_ready
from graphs.op_graph import Floats

IDLE, HELD, DUE = -1, -2, -3  # what a resource does that runs no task; DUE: it may start one at this instant
TASKS, TENSORS, STARTING, ALLOCATED = 0, 1, 2, 3  # counters


class Run(NamedTuple):
    """The state of one run, and afterwards its result."""

    queues: Queues
    counters: Indices  # (4,) tasks and tensors so far; resources due and devices allocated on at this instant
    device: Indices  # (ops,) where each op runs
    waiting: Indices  # (ops,) in-edges whose tensor is not there yet
    running: Indices  # (resources,) task, IDLE, HELD or DUE
    due: Indices  # (resources,) the resources that are DUE
    start: Floats  # (tasks,) seconds
    finish: Floats  # (tasks,) seconds
    sender: Indices  # (tasks,) of a transfer, the op whose output it carries
    destination: Indices  # (tasks,) of a transfer, the device, or NONE on a multicast channel
    seconds: Floats  # (tasks,) of a transfer
    sent_to: Indices  # (devices,) latest op whose output was sent there
    sent_over: Indices  # (channels,) latest transfer over a multicast channel
    readers: Indices  # (tensors,) a tensor is held until so many reads have ended
    tensor_of: Indices  # (edges,) what each edge reads
    copy_on: Indices  # (devices,) the latest copy there
    holder: Indices  # (tensors,) of a copy, the device
    source: Indices  # (tensors,) of a copy, the transfer that makes it
    first_copy: Indices  # (tasks,) of a transfer, the copies it makes: a list that ends with NONE
    next_copy: Indices  # (tensors,)
    held: Floats  # (devices,) bytes held now
    peak: Floats  # (devices,) largest bytes held at any instant
    allocated: Indices  # (devices,) where something was allocated at this instant
    is_allocated: Indices  # (devices,)

    @classmethod
    def room_for(cls, blueprint: Blueprint) -> Run:
        """Buffers for any placement."""
        ops, devices = blueprint.op_seconds.shape
        edges, channels = len(blueprint.consumer), len(blueprint.gap)
        tasks = ops + min(len(blueprint.in_edge), ops * (devices - 1))
        resources = devices + channels

        def indices(size: int) -> Indices:
            return np.full(size, NONE, np.int32)

        return cls(
            Queues.room_for(tasks, resources, blueprint.priority), indices(4), indices(ops), indices(ops),
            indices(resources), indices(resources), np.zeros(tasks), np.zeros(tasks), indices(tasks), indices(tasks),
            np.zeros(tasks), indices(devices), indices(channels), indices(tasks), indices(edges), indices(devices),
            indices(tasks), indices(tasks), indices(tasks), indices(tasks), np.zeros(devices), np.zeros(devices),
            indices(devices), indices(devices),
        )  # fmt: skip


@compiled
def time_placements(
    blueprint: Blueprint, placements: Indices, run: Run, step_seconds: Floats, peak_bytes: Floats
) -> None:
    """Time each of (plans, units) placements: write (plans,) seconds and (plans, devices) bytes.

    Memory is not followed, which takes half the time, if `peak_bytes` has room for no plan.
    """
    memory = len(peak_bytes) > 0
    for plan in range(len(placements)):
        step_seconds[plan] = time_placement(blueprint, placements[plan], run, memory)
        if memory:
            for device in range(len(run.peak)):
                peak_bytes[plan, device] = run.peak[device]


@inlined
def time_placement(blueprint: Blueprint, placement: Indices, run: Run, memory: bool) -> float:
    """Run all ops of a placement, (units,) devices; returns the end of the last one, in seconds."""
    _begin(blueprint, placement, run, memory)
    now, end = 0.0, 0.0
    head, tail = 0, 0
    queues, counters = run.queues, run.counters
    devices = len(run.held)
    fifo = len(queues.priority) == 0
    while True:
        for i in range(counters[STARTING]):
            resource = run.due[i]
            if queues.first[resource] < 0:
                run.running[resource] = IDLE
                continue
            head, tail = _start(blueprint, run, resource, now, head, tail, memory)
        counters[STARTING] = 0
        if head == tail:
            break
        if queues.event_seconds[head] > now:
            if memory:
                _note_peaks(run)
            now = queues.event_seconds[head]
        while head < tail and queues.event_seconds[head] == now:
            resource = queues.event_resource[head]
            head += 1
            task = run.running[resource]
            if task == HELD:
                _make_due(run, resource)
                continue
            if resource < devices:
                end = now
                hold = blueprint.launch_seconds[resource] if blueprint.op_seconds[task, resource] > 0 else 0.0
                _end_op(blueprint, run, task, resource, now, memory)
            else:
                hold = blueprint.gap[resource - devices]
                _end_transfer(blueprint, run, task, resource - devices, now, memory)
            first = queues.first[resource]
            # first come, first served: who was ready before this instant is next, whatever else it brings
            known = fifo and first >= 0 and queues.ready[first] < now and (hold == 0.0 or not memory)
            if known and _seconds(blueprint, run, first, resource) > 0.0:
                head, tail = _start(blueprint, run, resource, now + hold, head, tail, memory)
            elif hold > 0.0:
                run.running[resource] = HELD
                head, tail = push_event(queues, head, tail, now + hold, resource)
            else:
                _make_due(run, resource)
    return end


@inlined
def _begin(blueprint: Blueprint, placement: Indices, run: Run, memory: bool) -> None:
    """Reset the state; queue the ops that wait for nothing."""
    ops = len(run.device)
    run.counters[TASKS] = run.counters[TENSORS] = ops
    run.counters[STARTING] = run.counters[ALLOCATED] = 0
    run.running[:] = IDLE
    run.queues.first[:] = NONE
    run.sent_to[:] = NONE
    run.sent_over[:] = NONE
    for op in range(ops):
        run.device[op] = placement[blueprint.unit[op]]
        run.waiting[op] = blueprint.inputs[op]
    for op in range(ops):
        if run.waiting[op] == 0:
            _make_ready(run, op, run.device[op], 0.0)
    if memory:
        static_bytes(blueprint, run.device, run.copy_on, run.held)
        run.copy_on[:] = NONE
        run.is_allocated[:] = 0
        for device in range(len(run.peak)):
            run.peak[device] = run.held[device]


@inlined
def _make_ready(run: Run, task: int, resource: int, now: float) -> None:
    push_ready(run.queues, task, resource, now)
    if run.running[resource] == IDLE:
        _make_due(run, resource)


@inlined
def _make_due(run: Run, resource: int) -> None:
    run.running[resource] = DUE
    run.due[run.counters[STARTING]] = resource
    run.counters[STARTING] += 1


@inlined
def _seconds(blueprint: Blueprint, run: Run, task: int, resource: int) -> float:
    return float(blueprint.op_seconds[task, resource] if resource < len(run.held) else run.seconds[task])


@inlined
def _start(
    blueprint: Blueprint, run: Run, resource: int, at: float, head: int, tail: int, memory: bool
) -> tuple[int, int]:
    """Start the next task of a resource. Returns the new window of events."""
    task = pop_ready(run.queues, resource)
    finish = at + _seconds(blueprint, run, task, resource)
    run.running[resource] = task
    run.start[task] = at
    run.finish[task] = finish
    if memory:
        _allocate(blueprint, run, task, resource)
    return push_event(run.queues, head, tail, finish, resource)


@inlined
def _end_op(blueprint: Blueprint, run: Run, op: int, here: int, now: float, memory: bool) -> None:
    """Hand the output to the consumers on this device, and send it to the others, once per device."""
    if memory:
        _read_inputs(blueprint, run, op, here)
        run.readers[op] = 0
    for edge in range(blueprint.out_start[op], blueprint.control_start[op]):
        consumer = blueprint.consumer[edge]
        there = run.device[consumer]
        if there == here:
            _arrive(run, consumer, now)
            if memory:
                run.readers[op] += 1
                run.tensor_of[edge] = op
            continue
        if run.sent_to[there] != op:
            run.sent_to[there] = op
            _send(blueprint, run, op, here, there, now, memory)
        if memory:
            copy = run.copy_on[there]
            run.readers[copy] += 1
            run.tensor_of[edge] = copy
    for edge in range(blueprint.control_start[op], blueprint.out_start[op + 1]):
        _arrive(run, blueprint.consumer[edge], now)
    if memory and run.readers[op] == 0:
        run.held[here] -= blueprint.output_bytes[op]


@inlined
def _arrive(run: Run, op: int, now: float) -> None:
    run.waiting[op] -= 1
    if run.waiting[op] == 0:
        _make_ready(run, op, run.device[op], now)


@inlined
def _send(blueprint: Blueprint, run: Run, op: int, here: int, there: int, now: float, memory: bool) -> None:
    """Queue a transfer, or let a multicast one of this op serve one more device, at the pace of the slowest."""
    channel = blueprint.channel[here, there]
    seconds = blueprint.latency[here, there] + blueprint.output_bytes[op] / blueprint.bandwidth[here, there]
    multicast = blueprint.multicast[channel]
    task = run.sent_over[channel]
    if multicast and task >= 0 and run.sender[task] == op:
        run.seconds[task] = max(run.seconds[task], seconds)
    else:
        task = run.counters[TASKS]
        run.counters[TASKS] += 1
        run.sender[task] = op
        run.destination[task] = NONE if multicast else there
        run.seconds[task] = seconds
        run.queues.tie[task] = np.int64(op) * len(run.held) + there
        if len(run.queues.priority) > 0:
            run.queues.priority[task] = run.queues.priority[op]
        if memory:
            run.first_copy[task] = NONE
            run.readers[op] += 1
        run.sent_over[channel] = task
        _make_ready(run, task, len(run.held) + channel, now)
    if memory:
        copy = run.counters[TENSORS]
        run.counters[TENSORS] += 1
        run.holder[copy] = there
        run.source[copy] = task
        run.readers[copy] = 0
        run.next_copy[copy] = run.first_copy[task]
        run.first_copy[task] = copy
        run.copy_on[there] = copy


@inlined
def _end_transfer(blueprint: Blueprint, run: Run, task: int, channel: int, now: float, memory: bool) -> None:
    """Hand what has arrived to its consumers."""
    op, there = run.sender[task], run.destination[task]
    here = run.device[op]
    multicast = blueprint.multicast[channel]
    for edge in range(blueprint.out_start[op], blueprint.control_start[op]):
        consumer = blueprint.consumer[edge]
        where = run.device[consumer]
        if where == there or (multicast and where != here and blueprint.channel[here, where] == channel):
            _arrive(run, consumer, now)
    if memory:
        _read(blueprint, run, op, op, here)


# ---- memory ----------------------------------------------------------------------------------------------------------


@inlined
def _allocate(blueprint: Blueprint, run: Run, task: int, resource: int) -> None:
    """Hold what a starting task writes: an output, or the copies of one."""
    if resource < len(run.held):
        run.held[resource] += blueprint.output_bytes[task]
        _note_allocation(run, resource)
        return
    size = blueprint.output_bytes[run.sender[task]]
    copy = run.first_copy[task]
    while copy >= 0:
        run.held[run.holder[copy]] += size
        _note_allocation(run, run.holder[copy])
        copy = run.next_copy[copy]


@inlined
def _read_inputs(blueprint: Blueprint, run: Run, op: int, here: int) -> None:
    for i in range(blueprint.in_start[op], blueprint.in_start[op + 1]):
        tensor = run.tensor_of[blueprint.in_edge[i]]
        _read(blueprint, run, tensor, blueprint.producer[i], here)


@inlined
def _read(blueprint: Blueprint, run: Run, tensor: int, op: int, device: int) -> None:
    """One read of a tensor, the output of `op` or a copy of it on a device, has ended: the last one frees it."""
    run.readers[tensor] -= 1
    if run.readers[tensor] == 0:
        run.held[device] -= blueprint.output_bytes[op]


@inlined
def _note_allocation(run: Run, device: int) -> None:
    if not run.is_allocated[device]:
        run.is_allocated[device] = 1
        run.allocated[run.counters[ALLOCATED]] = device
        run.counters[ALLOCATED] += 1


@inlined
def _note_peaks(run: Run) -> None:
    """The instant is over: what is held now is held for some time."""
    for i in range(run.counters[ALLOCATED]):
        device = run.allocated[i]
        run.is_allocated[device] = 0
        run.peak[device] = max(run.peak[device], run.held[device])
    run.counters[ALLOCATED] = 0
