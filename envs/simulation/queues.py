"""The queues of the engine: events in order of time, and, per resource, tasks in the order in which they may start.

A resource's queue is a linked list if it is first come, first served, since a task that becomes ready later goes to
its end, and otherwise a skew heap (Sleator & Tarjan 1986). Its links are in the records of the tasks.
"""

from __future__ import annotations

import numpy as np

from envs.simulation.blueprint import NONE, Blueprint, Index, Record, Records
from envs.simulation.compiled import inlined, subroutine

TASK = np.dtype(
    [
        ("seconds", np.float64),
        ("start", np.float64),  # seconds
        ("ready", np.float64),  # seconds
        ("op", np.uint32),  # the op it computes, or whose output or message it carries
        ("output", np.uint32),  # what it makes or carries
        ("destination", np.uint32),  # the device it computes on, or carries to; NONE on a multicast channel
        ("waiting", np.uint32),  # in-edges of an op whose tensor is not there yet
        ("next", np.uint32),  # in the list, or right child in the heap
        ("left", np.uint32),  # left child in the heap
        ("arrivals", np.uint32),  # of a transfer, the first of the edges it serves
        ("copies", np.uint32),  # of a transfer, the first of the copies it makes
    ],
    align=True,
)
RESOURCE = np.dtype(
    [
        ("running", np.uint32),  # task, or what it does instead
        ("first", np.uint32),  # head of the list or root of the heap
        ("last", np.uint32),  # end of the list
        ("sent", np.uint32),  # of a device, the output that was sent to it last
        ("transfer", np.uint32),  # of a device, the latest one to it; of a channel, the latest one over it
        ("copy", np.uint32),  # of a device, the latest copy there
        ("allocated", np.bool_),  # of a device, whether something was at this instant
        ("since", np.float64),  # seconds at which it last became free
        ("may_idle", np.float64),  # of a device, seconds for which it may still be idle
        ("held", np.float64),  # of a device, bytes now
        ("peak", np.float64),  # of a device, largest bytes at any instant
    ],
    align=True,
)
EVENT = np.dtype(
    [
        ("seconds", np.float64),
        ("resource", np.uint32),  # whose task ends; resources + i if it is transfer i, over a free link
    ],
    align=True,
)


@inlined
def push_ready(blueprint: Blueprint, tasks: Records, resource: Record, index: int, now: float) -> None:
    """Queue a task that is ready now, which is no earlier than whatever is queued."""
    task = tasks[index]
    task.ready = now
    task.next = NONE
    if not blueprint.fifo:
        task.left = NONE
        resource.first = _merged(blueprint.ops, tasks, index, resource.first)
    elif resource.first == NONE:
        resource.first = resource.last = index
    elif tasks[resource.last].ready < now or _before(tasks[resource.last], task):
        tasks[resource.last].next = index
        resource.last = index
    else:
        _insert_among_equals(tasks, resource, index)


@inlined
def push_last(tasks: Records, resource: Record, index: int) -> None:
    """Queue a task of a resource that starts all it has at once."""
    tasks[index].next = NONE
    if resource.first == NONE:
        resource.first = index
    else:
        tasks[resource.last].next = index
    resource.last = index


@subroutine
def _insert_among_equals(tasks: Records, resource: Record, index: int) -> None:
    task = tasks[index]
    before, at = NONE, resource.first
    while tasks[at].ready < task.ready or _before(tasks[at], task):
        before, at = at, tasks[at].next
    task.next = at
    if before == NONE:
        resource.first = index
    else:
        tasks[before].next = index


@inlined
def _before(one: Record, other: Record) -> bool:
    """Order of tasks of equal priority and ready time: by op, then by destination, then by output."""
    if one.op != other.op:
        return bool(one.op < other.op)
    if one.destination != other.destination:
        return bool(one.destination < other.destination)
    return bool(one.output < other.output)


@inlined
def pop_ready(blueprint: Blueprint, tasks: Records, resource: Record) -> int:
    """The task to start next on a resource whose queue is not empty."""
    index: int = resource.first
    task = tasks[index]
    resource.first = task.next if blueprint.fifo else _merged(blueprint.ops, tasks, task.left, task.next)
    return index


@subroutine
def _merged(ops: Records, tasks: Records, one: int, other: int) -> int:
    """Root of two skew heaps made one: merge their right spines, and swap the children of each node on the way."""
    root = parent = NONE
    while one != NONE and other != NONE:
        if _more_urgent(ops, tasks[other], tasks[one]):
            one, other = other, one
        if parent == NONE:
            root = one
        else:
            tasks[parent].left = one
        parent = one
        rest = tasks[one].next
        tasks[one].next = tasks[one].left
        one = rest
    rest = one if one != NONE else other
    if parent == NONE:
        return rest
    tasks[parent].left = rest
    return root


@inlined
def _more_urgent(ops: Records, one: Record, other: Record) -> bool:
    first, second = ops[one.op].priority, ops[other.op].priority
    if first != second:
        return bool(first < second)
    if one.ready != other.ready:
        return bool(one.ready < other.ready)
    return _before(one, other)


@inlined
def push_event(events: Records, head: int, tail: int, seconds: float, resource: Index) -> tuple[int, int]:
    """Sort an event into the window [head, tail) from its end, where late events belong. Returns the new window."""
    if tail == len(events):
        for i in range(tail - head):
            events[i].seconds = events[head + i].seconds
            events[i].resource = events[head + i].resource
        head, tail = 0, tail - head
    at = tail
    while at > head and events[at - 1].seconds > seconds:
        events[at].seconds = events[at - 1].seconds
        events[at].resource = events[at - 1].resource
        at -= 1
    events[at].seconds = seconds
    events[at].resource = resource
    return head, tail + 1
