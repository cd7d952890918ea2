"""The queues of the engine: events in order of time, and, per resource, tasks in the order in which they may start.

A resource's queue is a linked list if it is first come, first served, since a task that becomes ready later goes to
its end, and otherwise a pairing heap (Fredman, Sedgewick, Sleator & Tarjan 1986), a tree in which no task is more
urgent than its parent. Its links are in the records of the tasks.
"""

from envs.simulation.blueprint import NONE, Blueprint, Index, Record, Records
from envs.simulation.compiled import inlined, subroutine


@inlined
def push(blueprint: Blueprint, tasks: Records, resource: Record, index: int) -> None:
    """Queue a task that is ready."""
    task = tasks[index]
    task.next = NONE
    if blueprint.fifo:
        if resource.first == NONE:
            resource.first = resource.last = index
        elif _sooner(tasks[resource.last], task):
            tasks[resource.last].next = index
            resource.last = index
        else:
            _insert_among_equals(tasks, resource, index)
    else:
        task.child = NONE
        if resource.first == NONE:
            resource.first = index
        else:
            resource.first = _linked(tasks, index, resource.first)


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
    while _sooner(tasks[at], task):
        before, at = at, tasks[at].next
    task.next = at
    if before == NONE:
        resource.first = index
    else:
        tasks[before].next = index


@inlined
def _sooner(one: Record, other: Record) -> bool:
    """Order of tasks of equal priority: by ready time, then by op, by destination, and by output."""
    if one.ready != other.ready:
        return bool(one.ready < other.ready)
    if one.op != other.op:
        return bool(one.op < other.op)
    if one.destination != other.destination:
        return bool(one.destination < other.destination)
    return bool(one.output < other.output)


@inlined
def pop(blueprint: Blueprint, tasks: Records, resource: Record) -> int:
    """The task to start next on a resource whose queue is not empty."""
    index: int = resource.first
    task = tasks[index]
    if blueprint.fifo:
        resource.first = task.next
    else:
        child = task.child
        several = child != NONE and tasks[child].next != NONE
        resource.first = _joined(tasks, child) if several else child
    return index


@inlined
def _linked(tasks: Records, one: int, other: int) -> int:
    """Root of two heaps made one: the less urgent root becomes the first child of the other."""
    if is_more_urgent(tasks[other], tasks[one]):
        one, other = other, one
    tasks[other].next = tasks[one].child
    tasks[one].child = other
    return one


@subroutine
def _joined(tasks: Records, first: int) -> int:
    """Root of several heaps, in a list, made one: first in pairs, and then the pairs, from the last to the first."""
    pairs = NONE
    while first != NONE:
        one, other = first, tasks[first].next
        if other == NONE:
            first = NONE
        else:
            first = tasks[other].next
            one = _linked(tasks, one, other)
        tasks[one].next = pairs
        pairs = one
    root, pairs = pairs, tasks[pairs].next
    tasks[root].next = NONE
    while pairs != NONE:
        one = pairs
        pairs = tasks[one].next
        root = _linked(tasks, root, one)
    tasks[root].next = NONE
    return root


@inlined
def is_more_urgent(one: Record, other: Record) -> bool:
    """Whether a task goes before another in the queue of a resource."""
    if one.priority != other.priority:
        return bool(one.priority < other.priority)
    return _sooner(one, other)


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


@inlined
def withdraw_event(events: Records, head: int, tail: int, resource: Index) -> tuple[int, int]:
    """Remove the event of a resource from the window [head, tail). Returns the new window."""
    at = tail - 1
    while events[at].resource != resource:
        at -= 1
    while at > head:
        events[at].seconds = events[at - 1].seconds
        events[at].resource = events[at - 1].resource
        at -= 1
    return head + 1, tail
