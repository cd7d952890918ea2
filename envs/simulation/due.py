"""What resources do that run no task, and which of them may start one at this instant."""

import numpy as np

from envs.simulation.blueprint import NONE, Blueprint, Index
from envs.simulation.compiled import inlined, subroutine
from envs.simulation.issuing import issue_more
from envs.simulation.queues import is_more_urgent, push, push_event, withdraw_event
from envs.simulation.run import STARTING, Run

# what a resource does that runs no task; DUE: it may start one at this instant; UNISSUED: it waits until its next op
# has been issued, and RECALLED is one of these that is due
IDLE, HELD, UNISSUED, RECALLED, DUE = NONE, NONE - 1, NONE - 2, NONE - 3, NONE - 4
STARTED = -1.0  # in place of seconds


@inlined
def make_due(run: Run, where: Index) -> None:
    """A resource that ran nothing, or has ended it, may start a task."""
    run.resources[where].running = DUE
    add_due(run, where)


@inlined
def add_due(run: Run, where: Index) -> None:
    """Let a resource be looked at, once all ends of this instant have been applied."""
    run.due[run.counters[STARTING]] = where
    run.counters[STARTING] += 1


@subroutine
def recall(run: Run, where: Index) -> None:
    """A device that waits for its next op to be issued has to decide again."""
    run.resources[where].running = RECALLED
    add_due(run, where)


@subroutine
def issued_start(
    blueprint: Blueprint, run: Run, where: Index, at: float, head: int, tail: int
) -> tuple[float, int, int]:
    """When a device that is free from `at` on starts its next op, and the window of events.

    The time is negative if it must decide again: once the op is issued, or once its thread can issue it.
    """
    resource = run.resources[where]
    issued = run.issued[resource.first]
    run.free_at[where] = at
    if issued <= at:
        return at, head, tail
    if issued == np.inf:
        resource.running = IDLE
        return -1.0, head, tail
    if blueprint.messages_hold or issued + run.tasks[resource.first].seconds == issued:
        resource.running = UNISSUED
        head, tail = push_event(run.events, head, tail, issued, where)
        return -1.0, head, tail
    resource.may_idle -= issued - resource.since
    resource.since = issued
    return issued, head, tail


@inlined
def make_ready(blueprint: Blueprint, run: Run, index: int, where: int, now: float) -> None:
    """A task that waits for nothing any more is queued, or lets a device look at its stream."""
    resource = run.resources[where]
    run.tasks[index].ready = now
    if blueprint.streams and where < len(blueprint.kind):
        if resource.running == IDLE:
            make_due(run, where)
        return
    push(blueprint, run.tasks, resource, index)
    if resource.running == IDLE:
        make_due(run, where)
    elif resource.running == UNISSUED:
        if resource.first == index:
            recall(run, where)
    elif (
        resource.since >= now
        and resource.running < DUE
        and is_more_urgent(run.tasks[index], run.tasks[resource.running])
    ):
        resource.since = STARTED  # it is due once, however many become ready
        add_due(run, where)


@subroutine
def take_back(blueprint: Blueprint, run: Run, where: int, head: int, tail: int) -> tuple[int, int]:
    """Queue again what was to start later. Returns the new window of events."""
    resource = run.resources[where]
    resource.since = run.tasks[resource.running].start
    if blueprint.host and where < len(run.clocks):
        resource.may_idle += resource.since - run.free_at[where]
        resource.since = run.free_at[where]
    push(blueprint, run.tasks, resource, resource.running)
    return withdraw_event(run.events, head, tail, where)


@subroutine
def settle(run: Run, now: float) -> None:
    """What was to start at this instant has started, whatever becomes ready in its further rounds."""
    for where in range(len(run.resources)):
        resource = run.resources[where]
        if resource.since == now and resource.running < DUE:
            resource.since = STARTED


@subroutine
def resume_thread(run: Run, op: Index, now: float) -> None:
    """A message has arrived, or an op ended: the thread goes on that may have waited for it before it issues the op."""
    where = run.tasks[op].destination
    run.awaited[op] -= 1
    if run.awaited[op] == 0 and run.next_op[where] == op:
        issue_more(run, where, now)
        if run.resources[where].running == IDLE and run.resources[where].first != NONE:
            make_due(run, where)
