"""What is issued to devices that are streams, in its order: ops, and copies at both of their ends.

A copy is issued before the first op that reads it, that of a gradient after the node of autograd that makes it, as the
backward pass of a copy is a copy; that of a sum after the last node that adds to it on the copy's device
(`graphs.transforms.autograd_step`). The first one holds the sum. The second end of a copy is the other device, or its
side stream.
"""

from envs.simulation.blueprint import NONE, Blueprint, Index
from envs.simulation.compiled import inlined, subroutine
from envs.simulation.memory import end_of
from envs.simulation.run import CONTENDED, COPIES, TASKS, Run
from envs.simulation.stream_times import second_stream, time_copy, time_op

_ENDS = 2  # what a copy waits for in addition to what it carries: two streams, at which it was issued


@subroutine
def clear_streams(run: Run) -> None:
    """Nothing has been issued."""
    run.counters[COPIES] = 0
    for edge in range(len(run.carried)):
        run.carried[edge] = NONE
    for device in range(len(run.heads)):
        run.heads[device] = NONE
    run.counters[CONTENDED] = 0
    run.step[0] = 0.0


@inlined
def issue_in_stream(blueprint: Blueprint, run: Run, op: Index) -> None:
    """Time an op, and write it into the stream of its device.

    Entry 2 i is op or copy i, and 2 i + 1 copy i in its second stream. Copies that it is the first to read come before
    it: not those of gradients, which were issued after their nodes.
    """
    edges, ready = blueprint.ops[op], run.tasks[op].ready
    for i in range(edges.in_start, edges.in_end):
        given = blueprint.inputs[i]
        copy = run.carried[given.edge]
        if copy == NONE:
            ready = max(ready, end_of(run.tasks[given.producer]))
            continue
        if run.awaited[copy] > 0:
            run.awaited[copy] = 0
            _issue_copy(blueprint, run, copy, op)
        ready = max(ready, end_of(run.tasks[copy]))
    time_op(blueprint, run, op, ready)
    if run.tasks[op].seconds > 0.0:
        _append(run, run.tasks[op].destination, 2 * op)


@subroutine
def issue_gradients(blueprint: Blueprint, run: Run, producer: Index, last: Index) -> None:
    """Issue the copies of what an op makes, unless others are to add to it, after the last op of its node."""
    edges = blueprint.ops[producer]
    for edge in range(edges.out_start, edges.control_start):
        copy = run.carried[edge]
        if copy != NONE:
            run.awaited[copy] -= 1
            if run.awaited[copy] == 0:
                _issue_copy(blueprint, run, copy, last)


@inlined
def give_to_copy(blueprint: Blueprint, run: Run, op: Index, edge: Index) -> None:
    """An op has been timed, and a copy carries what it makes to where an edge reads it."""
    if run.carried[edge] == NONE:
        _add_copy(blueprint, run, op, edge)
    copy = run.tasks[run.carried[edge]]
    copy.ready = max(copy.ready, end_of(run.tasks[op]))


@subroutine
def _add_copy(blueprint: Blueprint, run: Run, op: Index, edge: Index) -> None:
    """Make the copy that an edge from an op reads on another device, with all that it carries from there to there."""
    index, output = run.counters[TASKS], blueprint.edges[edge].output
    run.counters[TASKS] += 1
    here, there = run.tasks[op].destination, run.tasks[blueprint.edges[edge].consumer].destination
    link, sent, task = blueprint.links[here, there], blueprint.outputs[output], run.tasks[index]
    task.op = op
    task.destination = there
    task.seconds = (link.latency + sent.moved_bytes / link.bandwidth) * sent.pace
    task.arrivals = NONE
    task.ready = 0.0
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


@inlined
def _issue_copy(blueprint: Blueprint, run: Run, index: Index, op: Index) -> None:
    """Issue a copy with an op, after all that have been issued."""
    task = run.tasks[index]
    task.priority = run.counters[COPIES]
    run.counters[COPIES] += 1
    run.issued[index] = run.issued[op]
    time_copy(blueprint, run, index)
    here = run.tasks[task.op].destination
    _append(run, here, 2 * index)
    _append(run, second_stream(blueprint, here, task.destination), 2 * index + 1)


@inlined
def _append(run: Run, where: Index, entry: Index) -> None:
    run.following[entry] = NONE
    if run.heads[where] == NONE:
        run.heads[where] = entry
    else:
        run.following[run.resources[where].last] = entry
    run.resources[where].last = entry
