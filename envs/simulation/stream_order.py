"""What is issued to devices that are streams, in its order: ops, and copies at both of their ends.

A copy is issued before the first op that reads it, that of a gradient after the node of autograd that makes it, as the
backward pass of a copy is a copy; that of a sum after the last node that adds to it on the copy's device
(`graphs.transforms.autograd_step`). The first one holds the sum.
"""

from __future__ import annotations

from envs.simulation.blueprint import NONE, Blueprint, Index
from envs.simulation.compiled import inlined, subroutine
from envs.simulation.run import COPIES, TASKS, Run

_ENDS = 2  # what a copy waits for in addition to what it carries: the streams of both devices


@subroutine
def clear_streams(run: Run) -> None:
    """Nothing has been issued."""
    run.counters[COPIES] = 0
    for edge in range(len(run.carried)):
        run.carried[edge] = NONE
    for device in range(len(run.heads)):
        run.heads[device] = NONE


@inlined
def issue_in_stream(blueprint: Blueprint, run: Run, op: Index) -> None:
    """Write an op into the stream of its device: entry 2 i is op or copy i, and 2 i + 1 copy i where it arrives.

    Copies that it is the first to read come before it: not those of gradients, which were issued after their nodes.
    """
    edges = blueprint.ops[op]
    for i in range(edges.in_start, edges.in_end):
        copy = run.carried[blueprint.inputs[i].edge]
        if copy != NONE and run.awaited[copy] > 0:
            run.awaited[copy] = 0
            _issue_copy(run, copy, op)
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
                _issue_copy(run, copy, last)


@subroutine
def add_stream_copy(blueprint: Blueprint, run: Run, op: Index, edge: Index) -> None:
    """Make the copy that an edge from an op reads on another device, with all that it carries from there to there."""
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


@inlined
def _issue_copy(run: Run, index: Index, op: Index) -> None:
    """Issue a copy with an op, after all that have been issued."""
    task = run.tasks[index]
    task.priority = run.counters[COPIES]
    run.counters[COPIES] += 1
    run.issued[index] = run.issued[op]
    _append(run, run.tasks[task.op].destination, 2 * index)
    _append(run, task.destination, 2 * index + 1)


@inlined
def _append(run: Run, where: Index, entry: Index) -> None:
    run.following[entry] = NONE
    if run.heads[where] == NONE:
        run.heads[where] = entry
    else:
        run.following[run.resources[where].last] = entry
    run.resources[where].last = entry
