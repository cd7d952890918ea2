"""Streams are timed while they are written: of what is issued, all that it waits for has been issued before.

An op starts when what it reads is there, its device is free and it has been issued; a copy when both of its streams
are. No queue decides what is next, so no event loop is needed, and a run that is given up is issued no further.

Only channels have queues, which serve first what was issued first. A copy that comes to its channel no sooner than all
that were issued before it is served after them. One that comes sooner is timed as if the channel were free. Times are
lower bounds from there on, which may be enough to give the run up; otherwise the engine runs what was issued.
"""

import numpy as np

from envs.simulation.blueprint import NONE, Blueprint, Index
from envs.simulation.compiled import inlined, subroutine
from envs.simulation.memory import end_of, note_end
from envs.simulation.run import CONTENDED, ENDED, Run


@subroutine
def forget_times(run: Run) -> None:
    """The engine is to time it all again."""
    run.counters[ENDED] = 0
    for index in range(len(run.resources)):
        resource = run.resources[index]
        resource.transfer = NONE
        resource.since = 0.0
        resource.may_idle = run.may_idle[index] if index < len(run.may_idle) else np.inf


@inlined
def time_op(blueprint: Blueprint, run: Run, op: Index, ready: float) -> None:
    """Time an op whose inputs are there at a time; the step is infinite if its device was idle for too long."""
    task = run.tasks[op]
    note_end(run, op)
    task.start = ready
    if task.seconds > 0.0:
        device = run.resources[task.destination]
        task.start = max(ready, device.since, run.issued[op] if blueprint.clocked else 0.0)
        device.may_idle -= task.start - device.since
        device.since = end_of(task) + blueprint.servers[task.destination].hold
        if device.may_idle < 0.0:
            run.step[0] = np.inf
    end, edges = end_of(task), blueprint.ops[op]
    run.step[0] = max(run.step[0], end)
    for edge in range(edges.control_start, edges.out_end):
        reader = run.tasks[blueprint.edges[edge].consumer]
        reader.ready = max(reader.ready, end)


@inlined
def second_stream(blueprint: Blueprint, here: Index, there: Index) -> int:
    """The second stream of a copy from one device to another: the other device's, or its side stream."""
    if blueprint.side == NONE:
        return int(there)
    return int(blueprint.side + int(here) * len(blueprint.links) + int(there))


@subroutine
def time_copy(blueprint: Blueprint, run: Run, index: Index) -> None:
    """Time a copy, to which all that it carries has been given."""
    task = run.tasks[index]
    here, there = run.tasks[task.op].destination, task.destination
    second = second_stream(blueprint, here, there)
    arrival = max(task.ready, run.resources[here].since, run.issued[index] if blueprint.clocked else 0.0)
    task.start = max(arrival, run.resources[second].since)
    if blueprint.side == NONE:
        arrival = task.start  # a side stream has copies of one channel alone: who waits for it waits for the channel
    where = blueprint.links[here, there].resource
    if where != blueprint.free:
        channel = run.resources[where]
        if channel.transfer != NONE:
            other = run.tasks[channel.transfer]
            source = run.tasks[other.op].destination
            follows = here in (source, other.destination) or there in (source, other.destination)
            if blueprint.side != NONE:
                follows = here == source and there == other.destination
            if channel.since > task.start:
                if follows or (run.counters[CONTENDED] == 0 and arrival >= other.ready):
                    task.start = channel.since  # it rests after that copy, which has ended
                else:
                    run.counters[CONTENDED] = 1
            arrival = max(arrival, other.ready)
        channel.transfer = index
        task.ready = arrival
        channel.since = end_of(task) + blueprint.servers[where].hold
    note_end(run, index)
    end_copy(run, second, end_of(task))
    if blueprint.side == NONE:
        end_copy(run, here, end_of(task))


@inlined
def end_copy(run: Run, stream: Index, end: float) -> None:
    """A stream ran nothing else until the end of a copy, and goes on from there."""
    resource = run.resources[stream]
    resource.may_idle -= end - resource.since
    resource.since = end


@inlined
def is_timed(run: Run) -> bool:
    """Whether a run that has been issued needs no event loop."""
    return bool(run.step[0] == np.inf or not run.counters[CONTENDED])
