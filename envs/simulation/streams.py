"""Streams: devices that run strictly in the order of issue, where a copy occupies the devices at both its ends.

So does `tensor.to(device)` on GPUs: PyTorch puts the copy into the source's stream of work, lets it wait for what was
issued to the destination before, and lets what is issued there later wait for it (`copy_kernel_cuda`,
aten/src/ATen/native/cuda/Copy.cu: "two-way barrier"). What is issued when is in `envs.simulation.stream_order`.

    issued      a(0) b(0) [a to 1] c(1) d(0)
    gpu:0       aaabbbbb===ddd               d waits for the copy, which waits for b
    gpu:1               ===ccc

Or copies have side streams, one from each device to each other, as the current streams that `tensor.to` finds. A copy
waits for what was issued to its source before, which passes the mark of that and goes on; and at the destination only
what reads it waits.

    issued      a(0) b(0) [a to 1] c(1) d(0)
    gpu:0       aaabbbbbddd
    to gpu:1            ===
    gpu:1                  ccc

An op that takes no time is in no stream: it ends as soon as what it reads is there.
"""

from envs.simulation.blueprint import NONE, Blueprint, Index
from envs.simulation.compiled import inlined, subroutine
from envs.simulation.due import HELD, IDLE, make_due, make_ready
from envs.simulation.queues import push_event, push_last
from envs.simulation.run import STARTING, Run
from envs.simulation.stream_times import end_copy, forget_times, second_stream


@subroutine
def begin_streams(run: Run) -> None:
    """Devices to which something was issued look at it."""
    forget_times(run)
    for stream in range(len(run.heads)):
        if run.heads[stream] != NONE:
            make_due(run, stream)


@subroutine
def start_in_streams(blueprint: Blueprint, run: Run, now: float, head: int, tail: int) -> tuple[int, int]:
    """Let each stream that is due begin its next entry, or wait. Returns the new window of events.

    Its end is negative if a device was idle for longer than it may be.
    """
    for i in range(run.counters[STARTING]):
        here = run.due[i]
        if is_stream(blueprint, here):
            head, tail = _continue(blueprint, run, here, now, head, tail)
            if tail < 0:
                break
    return head, tail


@inlined
def is_stream(blueprint: Blueprint, where: Index) -> bool:
    """Whether a resource is a device, or a stream of copies: not a channel."""
    return bool(where < len(blueprint.kind) or where >= blueprint.side)


@subroutine
def _continue(blueprint: Blueprint, run: Run, here: int, now: float, head: int, tail: int) -> tuple[int, int]:
    """Let a stream begin its next entry, or wait. Returns the new window of events, as `start_in_streams`."""
    resource = run.resources[here]
    resource.running = IDLE
    while run.heads[here] != NONE and resource.running == IDLE:
        entry = run.heads[here]
        index = entry // 2
        is_op = index < len(run.order)
        if is_op and run.tasks[index].waiting > 0:
            break
        at = max(now, resource.since, run.issued[index])
        if at > now:
            resource.running = HELD
            head, tail = push_event(run.events, head, tail, at, here)
            break
        run.heads[here] = run.following[entry]
        if is_op:
            resource.running = index
            run.tasks[index].start = now
            resource.may_idle -= now - resource.since
            if resource.may_idle < 0.0:
                return head, -1
            head, tail = push_event(run.events, head, tail, now + run.tasks[index].seconds, here)
        else:
            if blueprint.side == NONE or here >= blueprint.side:  # else it passes a mark
                resource.running = HELD
            meet(blueprint, run, index, now)
    return head, tail


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
def release(blueprint: Blueprint, run: Run, index: Index, now: float) -> None:
    """A copy has ended: the streams that it occupied, which were idle for it, may go on."""
    task = run.tasks[index]
    here = run.tasks[task.op].destination
    if blueprint.side == NONE:
        end_copy(run, here, now)
        make_due(run, here)
    second = second_stream(blueprint, here, task.destination)
    end_copy(run, second, now)
    make_due(run, second)
