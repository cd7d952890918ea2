"""The engine: the only event loop. It times tasks over serial resources, and follows the memory they hold.

Rules 1, 3, 4 and 6 of the simulator: a resource runs one task at a time and is held a while after it; its queue is
ordered by (priority, ready time, op, destination); all ends of an instant are applied before anything starts at it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from envs.compiled import compiled, inlined
from envs.lowering import Blueprint, Tasks, lower, static_bytes
from graphs.op_graph import Bools, Floats, Ints

IDLE, HELD = -1, -2  # what a resource does when it runs no task


class Run(NamedTuple):
    """The state of one run, and afterwards its result."""

    start: Floats  # (tasks,) seconds
    finish: Floats  # (tasks,) seconds
    ready: Floats  # (tasks,) seconds
    running: Ints  # (resources,) task, IDLE or HELD
    queue: Ints  # (tasks,) ready tasks, a heap per resource
    queue_start: Ints  # (resources,) where the heap of each resource begins
    queue_size: Ints  # (resources,)
    event_seconds: Floats  # (resources,) heap of what comes next: a busy resource ends its task, or its hold
    event_resource: Ints  # (resources,) in the same heap
    changed: Ints  # (resources,) resources that may be able to start a task
    is_changed: Bools  # (resources,)
    held: Floats  # (devices,) bytes held now
    peak: Floats  # (devices,) largest bytes held at any instant

    @classmethod
    def room_for(cls, tasks: Tasks) -> Run:
        """Buffers for any placement that the tasks' buffers can hold."""
        size, devices = len(tasks.resource), len(tasks.copy_on)
        resources = devices + len(tasks.sent_over)
        return cls(
            start=np.zeros(size), finish=np.zeros(size), ready=np.zeros(size), running=np.zeros(resources, np.int64),
            queue=np.zeros(size, np.int64), queue_start=np.zeros(resources, np.int64),
            queue_size=np.zeros(resources, np.int64), event_seconds=np.zeros(resources),
            event_resource=np.zeros(resources, np.int64), changed=np.zeros(resources, np.int64),
            is_changed=np.zeros(resources, np.bool_), held=np.zeros(devices), peak=np.zeros(devices),
        )  # fmt: skip


@compiled
def time_placements(
    blueprint: Blueprint, placements: Ints, tasks: Tasks, run: Run, step_seconds: Floats, peak_bytes: Floats
) -> None:
    """Time each of (plans, units) placements: write (plans,) seconds and (plans, devices) bytes."""
    ops = len(blueprint.unit)
    for plan in range(len(placements)):
        lower(blueprint, placements[plan], tasks)
        static_bytes(blueprint, placements[plan], tasks.copy_on, run.held)
        time_tasks(tasks, run)
        step_seconds[plan] = 0.0
        for op in range(ops):
            step_seconds[plan] = max(step_seconds[plan], run.finish[op])
        for device in range(len(run.peak)):
            peak_bytes[plan, device] = run.peak[device]


@compiled
def time_tasks(tasks: Tasks, run: Run) -> None:
    """Run all tasks to their end. `run.held` enters with the bytes that are held for the whole step."""
    changed = _make_ready(tasks, run)
    now, events = 0.0, 0
    while True:
        for i in range(changed):
            resource = run.changed[i]
            run.is_changed[resource] = False
            if run.running[resource] == IDLE and run.queue_size[resource] > 0:
                task = _pop_ready(tasks, run, resource)
                run.running[resource] = task
                run.start[task] = now
                run.finish[task] = now + tasks.seconds[task]
                _allocate(tasks, run, task)
                events = _push_event(run, events, run.finish[task], resource)
        if events == 0:
            return
        changed = 0
        if run.event_seconds[0] > now:  # the instant is over: what is held now is held for some time
            for device in range(len(run.held)):
                run.peak[device] = max(run.peak[device], run.held[device])
            now = run.event_seconds[0]
        while events > 0 and run.event_seconds[0] == now:
            resource = run.event_resource[0]
            events = _pop_event(run, events)
            changed = _change(run, changed, resource)
            task = run.running[resource]
            run.running[resource] = IDLE
            if task == HELD:
                continue
            if tasks.hold[task] > 0:
                run.running[resource] = HELD
                events = _push_event(run, events, now + tasks.hold[task], resource)
            changed = _end(tasks, run, task, now, changed)


@inlined
def _make_ready(tasks: Tasks, run: Run) -> int:
    """Reset the state; queue what waits for nothing. Returns how many resources changed."""
    count = tasks.made[0]
    run.running[:] = IDLE
    run.queue_size[:] = 0
    run.is_changed[:] = False
    for device in range(len(run.held)):
        run.peak[device] = run.held[device]
    for task in range(count):
        run.queue_size[tasks.resource[task]] += 1
    run.queue_start[0] = 0
    for resource in range(1, len(run.queue_start)):
        run.queue_start[resource] = run.queue_start[resource - 1] + run.queue_size[resource - 1]
    run.queue_size[:] = 0
    changed = 0
    for task in range(count):
        if tasks.waiting[task] == 0:
            _push_ready(tasks, run, task, 0.0)
            changed = _change(run, changed, tasks.resource[task])
    return changed


@inlined
def _end(tasks: Tasks, run: Run, task: int, now: float, changed: int) -> int:
    """Release what the task read, and queue whoever waited for it last. Returns how many resources changed."""
    arc = tasks.first_read[task]
    while arc >= 0:
        tensor = tasks.arc_tensor[arc]
        tasks.readers[tensor] -= 1
        if tasks.readers[tensor] == 0:
            run.held[tasks.device[tensor]] -= tasks.bytes[tensor]
        arc = tasks.next_read[arc]
    arc = tasks.first_arc[task]
    while arc >= 0:
        waiter = tasks.arc_task[arc]
        tasks.waiting[waiter] -= 1
        if tasks.waiting[waiter] == 0:
            _push_ready(tasks, run, waiter, now)
            changed = _change(run, changed, tasks.resource[waiter])
        arc = tasks.next_arc[arc]
    return changed


@inlined
def _allocate(tasks: Tasks, run: Run, task: int) -> None:
    tensor = tasks.first_tensor[task]
    while tensor >= 0:
        run.held[tasks.device[tensor]] += tasks.bytes[tensor]
        tensor = tasks.next_tensor[tensor]


@inlined
def _change(run: Run, changed: int, resource: int) -> int:
    if not run.is_changed[resource]:
        run.is_changed[resource] = True
        run.changed[changed] = resource
        changed += 1
    return changed


# ---- the heap of each resource's ready tasks -------------------------------------------------------------------------


@inlined
def _before(tasks: Tasks, run: Run, one: int, other: int) -> bool:
    if tasks.priority[one] != tasks.priority[other]:
        return bool(tasks.priority[one] < tasks.priority[other])
    if run.ready[one] != run.ready[other]:
        return bool(run.ready[one] < run.ready[other])
    return bool(tasks.tie[one] < tasks.tie[other])


@inlined
def _push_ready(tasks: Tasks, run: Run, task: int, now: float) -> None:
    run.ready[task] = now
    resource = tasks.resource[task]
    root, at = run.queue_start[resource], run.queue_size[resource]
    run.queue_size[resource] += 1
    while at > 0:
        parent = (at - 1) >> 1
        above = run.queue[root + parent]
        if not _before(tasks, run, task, above):
            break
        run.queue[root + at] = above
        at = parent
    run.queue[root + at] = task


@inlined
def _pop_ready(tasks: Tasks, run: Run, resource: int) -> int:
    root = run.queue_start[resource]
    run.queue_size[resource] -= 1
    size = run.queue_size[resource]
    first, last = run.queue[root], run.queue[root + size]
    at, child = 0, 1
    while child < size:
        if child + 1 < size and _before(tasks, run, run.queue[root + child + 1], run.queue[root + child]):
            child += 1
        if not _before(tasks, run, run.queue[root + child], last):
            break
        run.queue[root + at] = run.queue[root + child]
        at, child = child, 2 * child + 1
    run.queue[root + at] = last
    return int(first)


# ---- the heap of events: at most one per resource --------------------------------------------------------------------


@inlined
def _push_event(run: Run, events: int, seconds: float, resource: int) -> int:
    """Returns how many events there are then."""
    at = events
    while at > 0:
        parent = (at - 1) >> 1
        if run.event_seconds[parent] <= seconds:
            break
        run.event_seconds[at] = run.event_seconds[parent]
        run.event_resource[at] = run.event_resource[parent]
        at = parent
    run.event_seconds[at] = seconds
    run.event_resource[at] = resource
    return events + 1


@inlined
def _pop_event(run: Run, events: int) -> int:
    """Returns how many events are left."""
    events -= 1
    seconds, resource = run.event_seconds[events], run.event_resource[events]
    at, child = 0, 1
    while child < events:
        if child + 1 < events and run.event_seconds[child + 1] < run.event_seconds[child]:
            child += 1
        if run.event_seconds[child] >= seconds:
            break
        run.event_seconds[at] = run.event_seconds[child]
        run.event_resource[at] = run.event_resource[child]
        at, child = child, 2 * child + 1
    run.event_seconds[at] = seconds
    run.event_resource[at] = resource
    return events
