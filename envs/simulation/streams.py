"""Streams: devices that run strictly in the order of issue, where a copy occupies the devices at both its ends.

So does `tensor.to(device)` on GPUs: PyTorch puts the copy into the source's stream of work, lets it wait for what was
issued to the destination before, and lets what is issued there later wait for it (`copy_kernel_cuda`,
aten/src/ATen/native/cuda/Copy.cu: "two-way barrier"). A copy is issued before the first op that reads it, that of a
gradient after the node of autograd that makes it, as the backward pass of a copy is a copy; that of a sum after the
last node that adds to it on the copy's device (`graphs.transforms.autograd_step`). The first one holds the sum.

    issued      a(0) b(0) [a to 1] c(1) d(0)
    gpu:0       aaabbbbb===ddd               d waits for the copy, which waits for b
    gpu:1               ===ccc

An op that takes no time is in no stream: it ends as soon as what it reads is there.
"""

from __future__ import annotations

from envs.simulation.blueprint import NONE, Blueprint, Index
from envs.simulation.compiled import inlined, subroutine
from envs.simulation.due import HELD, IDLE, make_due, make_ready
from envs.simulation.issuing import BACKWARD
from envs.simulation.memory import add_copy, allocate
from envs.simulation.queues import push_event, push_last
from envs.simulation.run import STARTING, TASKS, Run

_ENDS = 2  # what a copy waits for in addition to what it carries: the streams of both devices


@subroutine
def lay_out(blueprint: Blueprint, run: Run) -> None:
    """Write the stream of each device, in which entry 2 i is op or copy i, and 2 i + 1 copy i where it arrives."""
    copies = 0
    for edge in range(len(run.carried)):
        run.carried[edge] = NONE
    for place in range(len(run.sequence)):
        op = run.sequence[place]
        here, edges = run.tasks[op].destination, blueprint.ops[op]
        for i in range(edges.in_start, edges.in_end):
            given = blueprint.inputs[i]
            if run.carried[given.edge] == NONE and run.tasks[given.producer].destination != here:
                copies = _issue_copy(run, _copy_of(blueprint, run, given.producer, given.edge), op, copies)
        if run.tasks[op].seconds > 0.0:
            _append(run, here, 2 * op)
        node = blueprint.issue[op].node
        if blueprint.issue[op].turn == BACKWARD and run.tasks[node].priority + blueprint.issue[node].size == place + 1:
            for member in range(place + 1 - blueprint.issue[node].size, place + 1):
                copies = _issue_gradients(blueprint, run, run.sequence[member], op, copies)
    for device in range(blueprint.op_seconds.shape[1]):
        if run.resources[device].first != NONE:
            make_due(run, device)


@inlined
def _issue_gradients(blueprint: Blueprint, run: Run, producer: Index, last: Index, copies: int) -> int:
    """Issue the copies of what an op makes, unless others are to add to it, after the last op of its node."""
    here, edges = run.tasks[producer].destination, blueprint.ops[producer]
    for edge in range(edges.out_start, edges.control_start):
        if run.tasks[blueprint.edges[edge].consumer].destination != here:
            copy = int(run.carried[edge])
            if copy == NONE:
                copy = _copy_of(blueprint, run, producer, edge)
            run.awaited[copy] -= 1
            if run.awaited[copy] == 0:
                copies = _issue_copy(run, copy, last, copies)
    return copies


@subroutine
def _copy_of(blueprint: Blueprint, run: Run, op: Index, edge: Index) -> int:
    """The copy that an edge from an op reads on another device, with all that it carries from there to there."""
    index, output = run.counters[TASKS], blueprint.edges[edge].output
    run.counters[TASKS] += 1
    here, there = run.tasks[op].destination, run.tasks[blueprint.edges[edge].consumer].destination
    link, sent, task = blueprint.links[here, there], blueprint.outputs[output], run.tasks[index]
    task.op = op
    task.destination = there
    task.seconds = (link.latency + sent.moved_bytes / link.bandwidth) * sent.pace
    task.arrivals = task.copies = NONE
    carried = 0
    for i in range(blueprint.carrier_start[output], blueprint.carrier_start[output + 1]):
        carrier = blueprint.carriers[i]
        is_here = run.tasks[carrier.producer].destination == here
        if is_here and run.tasks[blueprint.edges[carrier.edge].consumer].destination == there:
            run.carried[carrier.edge] = index
            if carried == 0:
                task.output = carrier.output
            carried += 1
    run.awaited[index] = carried
    task.waiting = carried + _ENDS
    return int(index)


@inlined
def _issue_copy(run: Run, index: Index, op: Index, copies: int) -> int:
    """Issue a copy with an op, after some other copies. Returns how many there are then."""
    task = run.tasks[index]
    task.priority = copies
    run.issued[index] = run.issued[op]
    _append(run, run.tasks[task.op].destination, 2 * index)
    _append(run, task.destination, 2 * index + 1)
    return copies + 1


@inlined
def _append(run: Run, where: Index, entry: Index) -> None:
    resource = run.resources[where]
    run.following[entry] = NONE
    if resource.first == NONE:
        resource.first = entry
    else:
        run.following[resource.last] = entry
    resource.last = entry


@subroutine
def start_in_streams(blueprint: Blueprint, run: Run, now: float, head: int, tail: int, memory: bool) -> tuple[int, int]:
    """Let each device that is due begin the next entry of its stream, or wait. Returns the new window of events.

    Its end is negative if a device was idle for longer than it may be.
    """
    for i in range(run.counters[STARTING]):
        here = run.due[i]
        if here >= blueprint.op_seconds.shape[1]:
            continue
        resource = run.resources[here]
        entry = resource.first
        resource.running = IDLE
        if entry == NONE:
            continue
        index = entry // 2
        is_op = index < len(run.order)
        if is_op and run.tasks[index].waiting > 0:
            continue
        at = max(now, resource.since, run.issued[index])
        if at > now:
            resource.running = HELD
            head, tail = push_event(run.events, head, tail, at, here)
            continue
        resource.first = run.following[entry]
        if is_op:
            resource.running = index
            run.tasks[index].start = now
            resource.may_idle -= now - resource.since
            if resource.may_idle < 0.0:
                return head, -1
            if memory:
                allocate(blueprint, run, index, here)
            head, tail = push_event(run.events, head, tail, now + run.tasks[index].seconds, here)
        else:
            resource.running = HELD
            meet(blueprint, run, index, now)
    return head, tail


@inlined
def hand_over(blueprint: Blueprint, run: Run, op: Index, index: Index, now: float, memory: bool) -> int:
    """An op has made what an edge gives to a copy. Returns the tensor there, where memory is followed."""
    task, copy = run.tasks[index], 0
    if memory:
        if task.op == op and run.resources[task.destination].sent != index:  # once, though it may give several edges
            run.resources[task.destination].sent = index
            run.tensors[op].readers += 1
        copy = add_copy(run, index, task.destination) if task.copies == NONE else int(task.copies)
    meet(blueprint, run, int(index), now)
    return copy


@subroutine
def meet(blueprint: Blueprint, run: Run, index: int, now: float) -> None:
    """A copy waits for one thing less, and is then queued for its link."""
    task = run.tasks[index]
    task.waiting -= 1
    if task.waiting > 0:
        return
    where = blueprint.links[run.tasks[task.op].destination, task.destination].resource
    if where == blueprint.free:
        push_last(run.tasks, run.resources[where], index)
        if run.resources[where].running == IDLE:
            make_due(run, where)
    else:
        make_ready(blueprint, run, index, where, now)


@subroutine
def release(run: Run, index: Index, now: float) -> None:
    """A copy has ended: the devices at its ends, which were idle for it, may go on."""
    task = run.tasks[index]
    for here in (run.tasks[task.op].destination, task.destination):
        run.resources[here].may_idle -= now - run.resources[here].since
        run.resources[here].since = now
        make_due(run, here)
