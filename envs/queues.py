"""The queues of the engine: events in order of time, and, per resource, tasks in the order in which they may start.

All of them live in arrays that the caller owns. A resource's queue is a linked list if it is first come, first
served, since a task that becomes ready later goes to its end, and otherwise a skew heap (Sleator & Tarjan 1986).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from envs.compiled import inlined
from envs.lowering import Indices
from graphs.op_graph import Floats, Ints

NONE = -1


class Queues(NamedTuple):
    """Ready tasks by (priority, ready time, tie) per resource, and what happens next per busy resource."""

    priority: Floats  # (tasks,), or empty: first come, first served
    ready: Floats  # (tasks,) seconds
    tie: Ints  # (tasks,) order among equals on one resource: by op, then by destination
    first: Indices  # (resources,) head of the list or root of the heap, or NONE
    last: Indices  # (resources,) end of the list
    link: Indices  # (tasks,) next in the list, or right child in the heap
    left: Indices  # (tasks,) left child in the heap
    event_seconds: Floats  # (4 x resources,) ascending, in a window that moves to the right
    event_resource: Indices  # (4 x resources,) in the same order

    @classmethod
    def room_for(cls, tasks: int, resources: int, priority: Floats) -> Queues:
        """Buffers; the priorities are those of the first tasks, the ops."""
        priorities = np.concatenate([priority, np.zeros(tasks - len(priority))]) if len(priority) else priority

        def indices(size: int) -> Indices:
            return np.full(size, NONE, np.int32)

        return cls(
            priorities, np.zeros(tasks), np.arange(tasks), indices(resources), indices(resources), indices(tasks),
            indices(tasks), np.zeros(4 * resources), indices(4 * resources),
        )  # fmt: skip


@inlined
def push_ready(queues: Queues, task: int, resource: int, now: float) -> None:
    """Queue a task that is ready now, which is no earlier than whatever is queued."""
    queues.ready[task] = now
    first = queues.first[resource]
    if len(queues.priority) > 0:
        queues.link[task] = queues.left[task] = NONE
        queues.first[resource] = _merged(queues, task, first)
        return
    queues.link[task] = NONE
    if first < 0:
        queues.first[resource] = queues.last[resource] = task
        return
    last = queues.last[resource]
    if queues.ready[last] < now or queues.tie[last] < queues.tie[task]:
        queues.link[last] = task
        queues.last[resource] = task
        return
    _insert_among_equals(queues, task, resource, now)


@inlined
def _insert_among_equals(queues: Queues, task: int, resource: int, now: float) -> None:
    before, at = NONE, queues.first[resource]
    while queues.ready[at] < now or queues.tie[at] < queues.tie[task]:
        before, at = at, queues.link[at]
    queues.link[task] = at
    if before < 0:
        queues.first[resource] = task
    else:
        queues.link[before] = task


@inlined
def pop_ready(queues: Queues, resource: int) -> int:
    """The task to start next on a resource whose queue is not empty."""
    task = int(queues.first[resource])
    if len(queues.priority) > 0:
        queues.first[resource] = _merged(queues, queues.left[task], queues.link[task])
    else:
        queues.first[resource] = queues.link[task]
    return task


@inlined
def _merged(queues: Queues, one: int, other: int) -> int:
    """Root of two skew heaps made one: walk down the right spines, and swap the children of whoever stays above."""
    root = parent = NONE
    while one >= 0 and other >= 0:
        if _before(queues, other, one):
            one, other = other, one
        if parent < 0:
            root = one
        else:
            queues.left[parent] = one
        parent = one
        rest = queues.link[one]
        queues.link[one] = queues.left[one]
        one = rest
    rest = one if one >= 0 else other
    if parent < 0:
        return rest
    queues.left[parent] = rest
    return root


@inlined
def _before(queues: Queues, one: int, other: int) -> bool:
    if queues.priority[one] != queues.priority[other]:
        return bool(queues.priority[one] < queues.priority[other])
    if queues.ready[one] != queues.ready[other]:
        return bool(queues.ready[one] < queues.ready[other])
    return bool(queues.tie[one] < queues.tie[other])


@inlined
def push_event(queues: Queues, head: int, tail: int, seconds: float, resource: int) -> tuple[int, int]:
    """Sort an event into the window [head, tail) from its end, where late events belong. Returns the new window."""
    if tail == len(queues.event_seconds):
        for i in range(tail - head):
            queues.event_seconds[i] = queues.event_seconds[head + i]
            queues.event_resource[i] = queues.event_resource[head + i]
        head, tail = 0, tail - head
    at = tail
    while at > head and queues.event_seconds[at - 1] > seconds:
        queues.event_seconds[at] = queues.event_seconds[at - 1]
        queues.event_resource[at] = queues.event_resource[at - 1]
        at -= 1
    queues.event_seconds[at] = seconds
    queues.event_resource[at] = resource
    return head, tail + 1
