"""Issuing: when the threads of a host have issued each op, before which it cannot start.

A placement is run by one process, as PyTorch runs a user's loop. Its thread issues the forward pass for all devices;
then autograd has a thread for each, which issues of the nodes whose inputs have been issued, whether they have been
computed or not, the most urgent (`ReadyQueue`, torch/csrc/autograd/engine.cpp); at last one thread issues the updates.
Any other plan is run by a process for each device, whose ops one thread issues, and none waits for those of others:

    placement      main thread  |a b c|                |update ...      a copy, or c -> d, is a launch more
                   of gpu:0           |c.grad a.grad|
                   of gpu:1           |...... b.grad|                   b.grad reads c.grad

    other plans    of gpu:0     |F0 F1 B0 B1 update|                    also for a message that it receives
                   of gpu:1     |F0 B0 F1 B1 update|

A replayed placement (`Host.in_order`) is issued as other plans are, but by one thread for all devices.

Each thread issues the ops of least priority first, in other plans as soon as all that they wait for has been issued;
of equal ones the first in topological order. A node is an op, or several that autograd issues together
(`graphs.transforms.autograd_step`); it has been issued when its copies have been. Devices and channels take first what
was issued first. An op that takes time takes its thread what the `Host` says of its phase; what takes no time costs
none. What a model calls that is run by a plan takes it `Host.placed` more, unless it is in a module that runs whole
(`envs.simulation.seen_calls`), and a call whose gradient of a weight is deferred `Host.deferral`, in both passes. A
plan on one device needs neither: the model is left as it is. A message that
an op sends to another device costs what its op does, or as a collective where it is between processes; of a sum, what
each op adds to it does. The messages of a collective are one launch on each device that takes part
(`graphs.host.Collectives`). None of them waits for its own launch: a message starts when its op has ended. Threads
never wait for devices: CUDA's queues hold about a thousand launches. With `Host.waits` a process waits for what it
receives, but for steps of collectives, before it issues the op that reads it, and where a pass begins for its device:
before it issues an op of another phase than the last one, until that has ended (of ops that take time, and no steps). A
forward pass then takes it `Host.fetch` longer.
"""

import numpy as np

from envs.simulation.blueprint import NONE, Blueprint, Index
from envs.simulation.compiled import inlined, subroutine
from envs.simulation.queues import pop, push
from envs.simulation.run import TASKS, Run
from envs.simulation.seen_calls import see_calls
from envs.simulation.stream_order import clear_streams, give_to_copy, issue_gradients, issue_in_stream
from graphs.op_graph import Phase

FORWARD, BACKWARD = int(Phase.FORWARD), int(Phase.BACKWARD)


@subroutine
def issue_all(blueprint: Blueprint, run: Run) -> None:
    """Write when each op has been issued, in seconds, and as its priority how many were issued before it.

    `sort_issues` comes before. What waits for messages is issued by `issue_more`, as the engine runs; until then never.
    """
    if blueprint.streams:
        clear_streams(run)
    for device in range(len(run.clocks)):
        run.clocks[device] = run.owed[device] = 0.0
        run.seen[device] = run.next_op[device] = NONE
    for device in range(len(run.latest)):
        run.latest[device] = NONE
    if blueprint.in_order:
        _issue_in_order(blueprint, run)
    else:
        if len(run.seen_seconds) > 0:
            see_calls(blueprint, run)
        _issue_by_threads(blueprint, run)


@subroutine
def _issue_in_order(blueprint: Blueprint, run: Run) -> None:
    """The thread of a device, or of all, is charged with each op, and before it with messages since the last one."""
    for op in range(len(run.order)):
        run.issued[op] = np.inf
        run.awaited[op] = 0
        run.followed_by[op] = NONE
    for place in range(len(run.order) - 1, -1, -1):
        op = run.order[place]
        thread = run.tasks[op].destination if blueprint.per_device else 0
        run.next_issued[op] = run.next_op[thread]
        run.next_op[thread] = op
    for place in range(len(run.order)):
        op = int(run.order[place])
        task, issue = run.tasks[op], blueprint.issue[op]
        task.priority = place
        here = task.destination
        thread = here if blueprint.per_device else 0
        charge = issue.collectives
        if task.seconds > 0.0:
            charge += issue.op
        run.charge[op] = run.owed[thread] + charge
        run.owed[thread] = 0.0
        if blueprint.waits and task.seconds > 0.0 and not issue.is_step:
            latest = run.latest[here]
            run.latest[here] = op
            begins = latest == NONE or blueprint.issue[latest].turn != issue.turn
            if begins and latest != NONE:
                run.followed_by[latest] = op
                run.awaited[op] += 1
            if begins and issue.turn == FORWARD:
                run.charge[op] += blueprint.fetch
        edges = blueprint.ops[op]
        for edge in range(edges.out_start, edges.control_start):
            consumer, output = blueprint.edges[edge].consumer, blueprint.edges[edge].output
            there = run.tasks[consumer].destination
            if there != here and not issue.is_step:
                if blueprint.waits:
                    run.awaited[consumer] += 1
                if run.seen[there] != output:
                    run.seen[there] = output
                    run.owed[thread] += issue.message
                    run.owed[there if blueprint.per_device else 0] += issue.message
    for device in range(len(run.clocks)):
        issue_more(run, device, 0.0)


@subroutine
def issue_more(run: Run, device: Index, now: float) -> None:
    """Issue the next ops of a device, up to one that waits for messages."""
    run.clocks[device] = max(run.clocks[device], now)
    op = run.next_op[device]
    while op != NONE and run.awaited[op] == 0:
        run.clocks[device] += run.charge[op]
        run.issued[op] = run.clocks[device]
        op = run.next_issued[op]
    run.next_op[device] = op


@subroutine
def _issue_by_threads(blueprint: Blueprint, run: Run) -> None:
    """One process has a thread for all devices, and in the backward pass one for each. It has no collectives."""
    place = 0
    while place < len(run.order):
        turn = blueprint.issue[run.order[place]].turn
        _end_turn(run)
        if turn == BACKWARD:
            place = _issue_by_autograd(blueprint, run, place)
        while place < len(run.order) and blueprint.issue[run.order[place]].turn == turn:
            if blueprint.streams and run.step[0] == np.inf:
                return
            _issue(blueprint, run, run.order[place], place, 0)
            place += 1
    if not blueprint.clocked:
        for each in range(run.counters[TASKS] if blueprint.streams else 0):
            run.issued[each] = 0.0


@inlined
def _issue(blueprint: Blueprint, run: Run, op: Index, place: int, thread: Index) -> bool:
    """A thread issues an op and the copies of what it makes. Returns whether there are some."""
    task, cost = run.tasks[op], blueprint.issue[op].op
    task.priority = place
    run.sequence[place] = op
    if task.seconds > 0.0:
        run.clocks[thread] += cost
        if len(run.seen_seconds) > 0:
            run.clocks[thread] += run.seen_seconds[op]
    run.issued[op] = run.clocks[thread]
    if blueprint.streams:
        issue_in_stream(blueprint, run, op)
    if len(run.clocks) == 1:
        return False
    here, edges, copies = task.destination, blueprint.ops[op], False
    for edge in range(edges.out_start, edges.control_start):
        there, output = run.tasks[blueprint.edges[edge].consumer].destination, blueprint.edges[edge].output
        if there == here:
            continue
        copies = True
        if run.seen[there] != output:
            run.seen[there] = output
            run.clocks[thread] += blueprint.issue[op].message
        if blueprint.streams:
            give_to_copy(blueprint, run, op, edge)
    if copies:  # another op may add to the same sum
        for edge in range(edges.out_start, edges.control_start):
            run.seen[run.tasks[blueprint.edges[edge].consumer].destination] = NONE
    return copies


@subroutine
def _issue_by_autograd(blueprint: Blueprint, run: Run, place: int) -> int:
    """The threads of all devices take, of the nodes whose inputs have been issued, always the first in the order.

    They issue them all, from a place in the order on. Returns where those that follow begin.
    """
    end, now, busy, free = _queue_nodes(blueprint, run, place), 0.0, 0, len(run.clocks)
    for device in range(free):
        run.free[device] = device
    while True:
        for i in range(free):
            device = run.free[i]
            if run.next_op[device] == NONE and run.resources[device].first != NONE:
                run.clocks[device] = max(run.clocks[device], now)
                place = _issue_node(blueprint, run, place, device)
                busy = _add_busy(run, busy, device)
        if place == end or (blueprint.streams and run.step[0] == np.inf):
            break
        now, free = run.clocks[run.busy[busy - 1]], 0
        while busy > 0 and run.clocks[run.busy[busy - 1]] == now:
            busy -= 1
            free = _let_follow(blueprint, run, run.busy[busy], free)
    for device in range(len(run.clocks)):
        run.next_op[device] = NONE
    return place


@inlined
def _queue_nodes(blueprint: Blueprint, run: Run, place: int) -> int:
    """Queue the nodes of a backward pass that wait for none. Returns where it ends in the order."""
    while place < len(run.order) and blueprint.issue[run.order[place]].turn == BACKWARD:
        op = run.order[place]
        if blueprint.issue[op].node == op:
            run.tasks[op].priority = place
            run.awaited[op] = blueprint.issue[op].awaits
            if run.awaited[op] == 0:
                push(blueprint, run.tasks, run.resources[run.tasks[op].destination], int(op))
        place += 1
    return place


@inlined
def _issue_node(blueprint: Blueprint, run: Run, place: int, device: Index) -> int:
    """The thread of a device issues the first node in its queue. Returns how many ops have been issued."""
    node = pop(blueprint, run.tasks, run.resources[device])
    run.next_op[device] = node
    first = int(run.tasks[node].priority)
    last, copies = first + blueprint.issue[node].size, False
    for each in range(first, last):
        copies |= _issue(blueprint, run, run.order[each], place, device)
        place += 1
    if copies and blueprint.streams:
        for each in range(first, last):
            issue_gradients(blueprint, run, run.order[each], run.order[last - 1])
    return place


@inlined
def _add_busy(run: Run, busy: int, device: Index) -> int:
    """Sort a thread in with those that issue a node, the first to have issued it last. Returns their number."""
    at = busy
    while at > 0 and run.clocks[run.busy[at - 1]] < run.clocks[device]:
        run.busy[at] = run.busy[at - 1]
        at -= 1
    run.busy[at] = device
    return busy + 1


@inlined
def _add_free(run: Run, free: int, device: Index) -> int:
    """Sort a thread in with those that may take a node, by device. Returns their number."""
    at = free
    while at > 0 and run.free[at - 1] > device:
        run.free[at] = run.free[at - 1]
        at -= 1
    run.free[at] = device
    return free + 1


@inlined
def _let_follow(blueprint: Blueprint, run: Run, device: Index, free: int) -> int:
    """A thread has issued a node: those that read what it makes may be, by the threads of their devices.

    Returns how many threads may take one now, some of them twice.
    """
    node = run.next_op[device]
    run.next_op[device] = NONE
    free = _add_free(run, free, device)
    first = int(run.tasks[node].priority)
    for place in range(first, first + blueprint.issue[node].size):
        edges = blueprint.ops[run.sequence[place]]
        for edge in range(edges.out_start, edges.out_end):
            follower = blueprint.follows[edge]
            if follower != NONE:
                run.awaited[follower] -= 1
                if run.awaited[follower] == 0:
                    there = run.tasks[follower].destination
                    if run.resources[there].first == NONE and run.next_op[there] == NONE:
                        free = _add_free(run, free, there)
                    push(blueprint, run.tasks, run.resources[there], int(follower))
    return free


@inlined
def _end_turn(run: Run) -> None:
    """What is issued next follows all that any thread has issued."""
    latest = 0.0
    for device in range(len(run.clocks)):
        latest = max(latest, run.clocks[device])
    for device in range(len(run.clocks)):
        run.clocks[device] = latest


@subroutine
def sort_issues(blueprint: Blueprint, run: Run) -> None:
    """Bring the ops of a host in the order of issue: they are in it unless priorities have changed since then."""
    if blueprint.streams:
        return
    if blueprint.in_order:
        for op in range(len(run.sorted_by)):
            if run.sorted_by[op] != blueprint.ops[op].priority:
                _take_ready_first(blueprint, run)
                break
        return
    for place in range(1, len(run.order)):
        if _is_before(blueprint, run.order[place], run.order[place - 1]):
            _merge_sort(blueprint, run)
            break


@subroutine
def _take_ready_first(blueprint: Blueprint, run: Run) -> None:
    """Of the ops whose inputs have been issued, always the first by priority, and then by position."""
    queue, place = run.resources[0], 0
    queue.first = NONE
    for op in range(len(run.order)):
        task = run.tasks[op]
        task.priority = run.sorted_by[op] = blueprint.ops[op].priority
        task.ready = blueprint.issue[op].position
        run.awaited[op] = blueprint.ops[op].inputs
    for i in range(len(blueprint.sources)):
        push(blueprint, run.tasks, queue, int(blueprint.sources[i]))
    while queue.first != NONE:
        op = pop(blueprint, run.tasks, queue)
        run.order[place] = op
        place += 1
        for edge in range(blueprint.ops[op].out_start, blueprint.ops[op].out_end):
            reader = blueprint.edges[edge].consumer
            run.awaited[reader] -= 1
            if run.awaited[reader] == 0:
                push(blueprint, run.tasks, queue, int(reader))


@subroutine
def _merge_sort(blueprint: Blueprint, run: Run) -> None:
    """From short sorted parts to long ones: nothing is allocated."""
    count, width = len(run.order), 1
    while width < count:
        for place in range(count):
            run.sequence[place] = run.order[place]
        for first in range(0, count, 2 * width):
            one, middle = first, min(first + width, count)
            other, end = middle, min(first + 2 * width, count)
            for place in range(first, end):
                takes_other = one == middle or (
                    other < end and _is_before(blueprint, run.sequence[other], run.sequence[one])
                )
                if takes_other:
                    run.order[place] = run.sequence[other]
                    other += 1
                else:
                    run.order[place] = run.sequence[one]
                    one += 1
        width *= 2


@inlined
def _is_before(blueprint: Blueprint, one: int, other: int) -> bool:
    mine, its = blueprint.issue[one], blueprint.issue[other]
    if mine.turn != its.turn:
        return bool(mine.turn < its.turn)
    if blueprint.ops[one].priority != blueprint.ops[other].priority:
        return bool(blueprint.ops[one].priority < blueprint.ops[other].priority)
    return bool(mine.position < its.position)
