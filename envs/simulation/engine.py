"""The engine: the only event loop. It times ops and transfers over serial resources.

Rules 1 to 4 of the simulator: a resource runs one task at a time and is held a while after it; its queue is
ordered by (priority, ready time, op, destination); all ends of an instant are applied before anything starts at it. An
op that takes no time ends at the instant at which it is ready, and is in no queue.

A resource takes its next task at once, even if it is held: the task then starts at the end of the hold, unless a more
urgent one becomes ready before, which takes its place. So a hold needs no event of its own. It has one before a task
that takes no time, since that ends in another round of its instant; and where messages hold devices, for they make a
hold longer.

Task i < ops computes op i; the others are transfers, made when their producer ends.

With a host, a device waits as for the end of a hold until its next op has been issued (`envs.simulation.due`).

`ended` is the top of a stack: the ops that have ended at this instant and whose outputs are still to be handed out,
linked by `next`. It is passed from step to step, which is faster than a field of the run.
"""

import numpy as np

from envs.simulation.blueprint import NONE, Blueprint, Index, Indices
from envs.simulation.compiled import compiled, inlined, subroutine
from envs.simulation.due import (
    DUE,
    HELD,
    IDLE,
    RECALLED,
    UNISSUED,
    issued_start,
    make_due,
    make_ready,
    recall,
    resume_thread,
    settle,
    take_back,
)
from envs.simulation.issuing import issue_all, sort_issues
from envs.simulation.memory import follow_memory, note_end
from envs.simulation.queues import pop, push_event, push_last, withdraw_event
from envs.simulation.run import ENDED, STARTING, TASKS, Run
from envs.simulation.stream_times import is_timed
from envs.simulation.streams import begin_streams, is_stream, meet, release, start_in_streams
from graphs.op_graph import Floats


@compiled
def time_placements(
    blueprint: Blueprint, placements: Indices, run: Run, step_seconds: Floats, peak_bytes: Floats
) -> None:
    """Time each of (plans, units) placements: write (plans,) seconds and (plans, devices) bytes.

    Memory is not followed, which saves a quarter of the time, if `peak_bytes` has room for no plan. Seconds and bytes
    are infinite if a device was idle, between two ops or before its first, for longer than it may be.
    """
    sort_issues(blueprint, run)
    for plan in range(len(placements)):
        ended = _begin(blueprint, placements[plan], run)
        if blueprint.streams and is_timed(run):
            step_seconds[plan] = run.step[0]
        else:
            step_seconds[plan] = _run_all(blueprint, run, ended)
        if len(peak_bytes) > 0:
            if step_seconds[plan] == np.inf:
                peak_bytes[plan] = np.inf
            else:
                follow_memory(blueprint, placements[plan], run, peak_bytes[plan])


@inlined
def _begin(blueprint: Blueprint, placement: Indices, run: Run) -> int:
    """Reset the state; queue the ops that wait for nothing. Returns the stack of those that have already ended."""
    ops, devices = len(blueprint.ops), len(blueprint.kind)
    run.counters[TASKS] = ops
    run.counters[STARTING] = run.counters[ENDED] = 0
    ended = int(np.int64(NONE))  # no literal, as in `_run_all`
    if blueprint.messages_hold:
        _forget_messages(run)
    for index in range(len(run.resources)):
        resource = run.resources[index]
        resource.running = IDLE
        resource.first = resource.sent = resource.transfer = NONE
        resource.since = 0.0
        resource.may_idle = run.may_idle[index] if index < devices else np.inf
    for op in range(ops):
        task = run.tasks[op]
        task.destination = placement[blueprint.ops[op].unit]
        task.seconds = blueprint.op_seconds[op, blueprint.kind[task.destination]]
        task.waiting = blueprint.ops[op].inputs
        task.priority = blueprint.ops[op].priority
        task.ready = 0.0
        if task.waiting == 0 and not blueprint.host:
            ended = _make_op_ready(blueprint, run, int(task.op), 0.0, ended)
    return _begin_issued(blueprint, run, ended) if blueprint.host else ended


@subroutine
def _begin_issued(blueprint: Blueprint, run: Run, ended: int) -> int:
    """The same with a host: queues are in the order in which it issues."""
    issue_all(blueprint, run)
    if blueprint.streams:
        if is_timed(run):
            return ended
        begin_streams(run)
    for i in range(len(blueprint.sources)):
        ended = _make_op_ready(blueprint, run, int(blueprint.sources[i]), 0.0, ended)
    return ended


@inlined
def _run_all(blueprint: Blueprint, run: Run, ended: int) -> float:
    """Run all tasks; returns the end of the last op, in seconds, or infinity if the run was given up."""
    now, end = 0.0, 0.0
    head = tail = int(np.int64(0))  # with literals, numba would compile twice each function that gets them
    devices = len(blueprint.kind)
    while True:
        while ended != NONE:
            end, op = now, ended
            ended = int(run.tasks[op].next)
            ended = _end_op(blueprint, run, op, run.tasks[op].destination, now, ended)
        if blueprint.streams:
            head, tail = start_in_streams(blueprint, run, now, head, tail)
            if tail < 0:
                return np.inf
        for i in range(run.counters[STARTING]):
            here = run.due[i]
            if blueprint.streams and is_stream(blueprint, here):
                continue
            if here == blueprint.free:
                head, tail = _start_all(run, here, now, head, tail)
                continue
            resource = run.resources[here]
            if resource.running == RECALLED:
                head, tail = withdraw_event(run.events, head, tail, here)
            elif resource.running != DUE:
                head, tail = take_back(blueprint, run, here, head, tail)
            if blueprint.messages_hold and here < devices:
                _hold_for_messages(blueprint, run, here, now)
            if resource.first == NONE:
                resource.running = IDLE
                continue
            at = max(now, resource.since)
            if blueprint.host and here < devices:
                at, head, tail = issued_start(blueprint, run, here, at, head, tail)
                if at < 0.0:
                    continue
            resource.may_idle -= at - resource.since
            if resource.may_idle < 0.0:
                return np.inf
            if at > now and (blueprint.messages_hold or at + run.tasks[resource.first].seconds == at):
                resource.running = HELD
                head, tail = push_event(run.events, head, tail, at, here)
            else:
                head, tail = _start(blueprint, run, here, at, head, tail)
        run.counters[STARTING] = 0
        if head == tail:
            return end
        if run.events[head].seconds > now:
            now = run.events[head].seconds
        else:  # another round of this instant, since something took no time
            settle(run, now)
        while head < tail and run.events[head].seconds == now:
            here = run.events[head].resource
            head += 1
            if here >= len(run.resources):
                ended = _end_transfer(blueprint, run, np.uint32(here - len(run.resources)), now, ended)
                continue
            resource = run.resources[here]
            if resource.running == RECALLED:
                resource.running = DUE
                continue
            if resource.running < DUE:
                resource.since = now + blueprint.servers[here].hold
                if here < devices:
                    op = int(resource.running)
                    run.tasks[op].next = ended
                    ended = op
                else:
                    ended = _end_transfer(blueprint, run, resource.running, now, ended)
            make_due(run, here)


@inlined
def _make_op_ready(blueprint: Blueprint, run: Run, op: int, now: float, ended: int) -> int:
    """Queue an op that waits for nothing any more; one that takes no time has already ended. Returns the new stack."""
    task = run.tasks[op]
    if task.seconds > 0.0:
        make_ready(blueprint, run, op, task.destination, now)
        return ended
    task.start = now
    task.next = ended
    return op


@inlined
def _start(blueprint: Blueprint, run: Run, where: int, at: float, head: int, tail: int) -> tuple[int, int]:
    """Start the next task of a resource. Returns the new window of events."""
    index = pop(blueprint, run.tasks, run.resources[where])
    run.resources[where].running = index
    run.tasks[index].start = at
    return push_event(run.events, head, tail, at + run.tasks[index].seconds, where)


@inlined
def _start_all(run: Run, where: int, at: float, head: int, tail: int) -> tuple[int, int]:
    """Start all transfers that are queued for free links. Returns the new window of events."""
    index = run.resources[where].first
    run.resources[where].running = IDLE
    run.resources[where].first = NONE
    while index != NONE:
        run.tasks[index].start = at
        end = at + run.tasks[index].seconds
        head, tail = push_event(run.events, head, tail, end, np.uint32(len(run.resources) + index))
        index = run.tasks[index].next
    return head, tail


@inlined
def _end_op(blueprint: Blueprint, run: Run, index: int, here: int, now: float, ended: int) -> int:
    """Hand the output to the consumers on this device, and send it to the others, once per device.

    Returns the new stack of ended ops.
    """
    op = blueprint.ops[index]
    note_end(run, index)
    for edge in range(op.out_start, op.control_start):
        consumer = blueprint.edges[edge].consumer
        there = run.tasks[consumer].destination
        if there == here:
            run.carried[edge] = NONE
            ended = _arrive(blueprint, run, int(consumer), now, ended)
            continue
        if blueprint.streams:
            meet(blueprint, run, int(run.carried[edge]), now)
        else:
            output = blueprint.edges[edge].output
            if run.resources[there].sent != output:
                run.resources[there].sent = output
                _send(blueprint, run, index, edge, here, there, now)
            run.carried[edge] = run.resources[there].transfer
        transfer = run.tasks[run.carried[edge]]
        run.served[edge] = transfer.arrivals
        transfer.arrivals = edge
    for edge in range(op.control_start, op.out_end):
        ended = _arrive(blueprint, run, int(blueprint.edges[edge].consumer), now, ended)
    if blueprint.waits and run.followed_by[index] != NONE:
        resume_thread(run, run.followed_by[index], now)
    return ended


@inlined
def _arrive(blueprint: Blueprint, run: Run, op: int, now: float, ended: int) -> int:
    task = run.tasks[op]
    task.waiting -= 1
    if task.waiting == 0:
        return _make_op_ready(blueprint, run, op, now, ended)
    return ended


@inlined
def _send(blueprint: Blueprint, run: Run, op: int, edge: int, here: int, there: int, now: float) -> None:
    """Queue a transfer, or let a multicast one of this output serve one more device, at the pace of the slowest."""
    link, output = blueprint.links[here, there], blueprint.edges[edge].output
    channel = run.resources[link.resource]
    multicast = blueprint.servers[link.resource].multicast
    sent = blueprint.outputs[output]
    seconds = (link.latency + sent.moved_bytes / link.bandwidth) * sent.pace
    index = channel.transfer
    if multicast and index != NONE and run.tasks[index].output == output:
        run.tasks[index].seconds = max(run.tasks[index].seconds, seconds)
    else:
        index = run.counters[TASKS]
        run.counters[TASKS] += 1
        task = run.tasks[index]
        task.op = op
        task.priority = run.tasks[op].priority
        task.output = output
        task.destination = NONE if multicast else there
        task.seconds = seconds
        task.arrivals = NONE
        channel.transfer = index
        if blueprint.messages_hold:
            _add_message(run, here, sent.moved_bytes)
        if link.resource == blueprint.free:
            push_last(run.tasks, channel, index)
            if channel.running == IDLE:
                make_due(run, link.resource)
        else:
            make_ready(blueprint, run, index, link.resource, now)
    run.resources[there].transfer = index


@inlined
def _end_transfer(blueprint: Blueprint, run: Run, index: Index, now: float, ended: int) -> int:
    """Hand what has arrived to its consumers. Returns the new stack of ended ops."""
    note_end(run, index)
    task, edge = run.tasks[index], run.tasks[index].arrivals
    if blueprint.messages_hold:
        _receive(blueprint, run, index)
    if blueprint.streams:
        release(blueprint, run, index, now)
    while edge != NONE:
        ended = _arrive(blueprint, run, int(blueprint.edges[edge].consumer), now, ended)
        if blueprint.waits and not blueprint.issue[task.op].is_step:
            resume_thread(run, blueprint.edges[edge].consumer, now)
        edge = run.served[edge]
    return ended


# ---- messages that hold devices --------------------------------------------------------------------------------------


@subroutine
def _forget_messages(run: Run) -> None:
    for device in range(len(run.pending)):
        pending = run.pending[device]
        pending.messages = 0
        pending.bytes = 0.0
        pending.received = NONE


@subroutine
def _add_message(run: Run, where: Index, size: float) -> None:
    """A device has a message to hand over or to take in, which holds it: now if it is idle, else after what it does."""
    pending = run.pending[where]
    pending.messages += 1
    pending.bytes += size
    if run.resources[where].running == IDLE:
        make_due(run, where)
    elif run.resources[where].running == UNISSUED:
        recall(run, where)


@subroutine
def _receive(blueprint: Blueprint, run: Run, index: Index) -> None:
    """Each device that reads what a transfer carried takes it in."""
    size = blueprint.outputs[run.tasks[index].output].moved_bytes
    edge = run.tasks[index].arrivals
    while edge != NONE:
        there = run.tasks[blueprint.edges[edge].consumer].destination
        if run.pending[there].received != index:
            run.pending[there].received = index
            _add_message(run, there, size)
        edge = run.served[edge]


@subroutine
def _hold_for_messages(blueprint: Blueprint, run: Run, here: Index, now: float) -> None:
    """Hold a device that runs no op for the messages that it has sent and received."""
    pending, resource, server = run.pending[here], run.resources[here], blueprint.servers[here]
    if pending.messages > 0:
        resource.may_idle -= max(now - resource.since, 0.0)
        seconds = pending.messages * server.per_message + pending.bytes * server.per_byte
        resource.since = max(now, resource.since) + seconds
        pending.messages = 0
        pending.bytes = 0.0
