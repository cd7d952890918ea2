"""The memory that tensors take: rule 6 of the simulator, followed when the times of a run are known.

A device is followed from the end of the step back to its begin. So the first that is met of what reads a tensor is the
last that reads it, which frees it, and nothing need be counted:

    device       | a |  | b, reads a |  | c, reads a and b |
    backwards    - a    - b              + a + b

Its ops have followed each other. In between are moments: of ops that take no time, of begins of copies to the device,
and of ends of copies of what it has made. They have been noted almost in order, so each is soon sorted in; where that
would take long they are sorted in parts, which are merged. All that is freed or made at an instant counts before the
peak does.
"""

import numpy as np

from envs.simulation.blueprint import NONE, Blueprint, Index, Indices, Record, Records, static_bytes
from envs.simulation.compiled import inlined, subroutine
from envs.simulation.run import ENDED, MOMENTS, Run
from graphs.op_graph import Floats

_STEPS = 32  # of a moment to its place, after which it begins a part of its own


@inlined
def end_of(task: Record) -> float:
    """When a task ends that has been timed, in seconds."""
    return float(task.start + task.seconds)


@inlined
def note_end(run: Run, index: Index) -> None:
    """A task has ended; or in streams, where it is known when it will, has been issued."""
    run.ended[run.counters[ENDED]] = index
    run.counters[ENDED] += 1


@subroutine
def follow_memory(blueprint: Blueprint, placement: Indices, run: Run, peak_bytes: Floats) -> None:
    """Write the peak of each device, (devices,) bytes, in the run of a placement, (units,) devices."""
    static_bytes(blueprint, placement, run.seen, peak_bytes)
    _sort_moments(blueprint, run)
    for device in range(len(peak_bytes)):
        peak_bytes[device] = _peak(blueprint, run, device, peak_bytes[device])


@inlined
def _sort_moments(blueprint: Blueprint, run: Run) -> None:
    """Link what each device has run, and its moments, the latest first."""
    run.counters[MOMENTS] = 1
    run.moments[0].seconds = -1.0  # before all others
    for device in range(len(blueprint.links)):
        run.resources[device].ran = run.seen[device] = NONE
        run.resources[device].moment = run.resources[device].parts = 0
    for i in range(run.counters[ENDED]):
        index = run.ended[i]
        task = run.tasks[index]
        run.freed_on[index] = NONE
        if index < len(blueprint.ops) and task.seconds > 0.0:
            task.before = run.resources[task.destination].ran
            run.resources[task.destination].ran = index
            continue
        if index >= len(blueprint.ops):
            _add_moment(run, run.tasks[task.op].destination, end_of(task), index)
        if task.destination == NONE:
            _add_copies(blueprint, run, index)
        else:
            _add_moment(run, task.destination, task.start, index)
    for device in range(len(blueprint.links)):
        if run.resources[device].parts > 0:
            _merge_parts(run.moments, run.resources[device], run.parts[device])


@subroutine
def _add_copies(blueprint: Blueprint, run: Run, index: Index) -> None:
    """A multicast transfer makes a copy on each device that reads one."""
    edge = run.tasks[index].arrivals
    while edge != NONE:
        there = run.tasks[blueprint.edges[edge].consumer].destination
        if run.seen[there] != index:
            run.seen[there] = index
            _add_moment(run, there, run.tasks[index].start, index)
        edge = run.served[edge]


@inlined
def _add_moment(run: Run, where: Index, seconds: float, index: Index) -> None:
    """A device has one moment more, of a task."""
    place = run.counters[MOMENTS]
    run.counters[MOMENTS] += 1
    run.moments[place].seconds = seconds
    run.moments[place].task = index
    _sort_in(run.moments, run.resources[where], run.parts[where], place)


@subroutine
def _sort_in(moments: Records, device: Record, parts: Indices, place: Index) -> None:
    """Sort a moment in, from the latest on."""
    added, later = moments[place], moments[device.moment]
    if later.seconds <= added.seconds:
        added.before = device.moment
        device.moment = place
        return
    for _ in range(_STEPS):
        if moments[later.before].seconds <= added.seconds:
            added.before = later.before
            later.before = place
            return
        later = moments[later.before]
    _put_aside(moments, device, parts)
    added.before = 0
    device.moment = place


@subroutine
def _put_aside(moments: Records, device: Record, parts: Indices) -> None:
    """A device begins another part: of those that are 2^n parts there is one, as a bit of their number."""
    part, n = device.moment, 0
    while (device.parts >> n) & 1:
        part = _merged(moments, part, parts[n])
        n += 1
    parts[n] = part
    device.parts += 1


@subroutine
def _merge_parts(moments: Records, device: Record, parts: Indices) -> None:
    for n in range(len(parts)):
        if (device.parts >> n) & 1:
            device.moment = _merged(moments, device.moment, parts[n])


@subroutine
def _merged(moments: Records, one: Index, other: Index) -> Index:
    """The latest moment of two parts made one."""
    if moments[one].seconds < moments[other].seconds:
        one, other = other, one
    first = last = one
    one = moments[one].before
    while other != 0:
        if moments[one].seconds < moments[other].seconds:
            one, other = other, one
        moments[last].before = one
        last, one = one, moments[one].before
    moments[last].before = one
    return first


@inlined
def _peak(blueprint: Blueprint, run: Run, device: int, static: float) -> float:
    """The peak of a device, in bytes, that holds some for the whole step."""
    now, held, peak, moment = np.inf, static, static, run.resources[device].moment
    op = run.resources[device].ran
    while op != NONE:
        task, output = run.tasks[op], blueprint.outputs[op]
        now, held, peak, moment = _go_back(blueprint, run, device, end_of(task), now, held, peak, moment)
        held += _freed(blueprint, run, op, device) + output.working_bytes
        now, held, peak, moment = _go_back(blueprint, run, device, task.start, now, held, peak, moment)
        held -= output.made_bytes + output.working_bytes
        op = task.before
    return float(_go_back(blueprint, run, device, 0.0, now, held, peak, moment)[2])


@inlined
def _go_back(
    blueprint: Blueprint, run: Run, device: int, to: float, now: float, held: float, peak: float, moment: Index
) -> tuple[float, float, float, Index]:
    """Go back to a time, and undo what changes at moments from then on."""
    while run.moments[moment].seconds >= to:
        at = run.moments[moment]
        if at.seconds < now:
            now, peak = at.seconds, max(peak, held)
        held += _undone(blueprint, run, at.task, device)
        moment = at.before
    if to < now:
        now, peak = to, max(peak, held)
    return now, held, peak, moment


@subroutine
def _undone(blueprint: Blueprint, run: Run, index: Index, device: int) -> float:
    """How much more a device holds before a moment than after it, in bytes."""
    if index < len(blueprint.ops):
        return float(_freed(blueprint, run, index, device) - blueprint.outputs[index].made_bytes)
    task = run.tasks[index]
    if run.tasks[task.op].destination != device:
        return float(-blueprint.outputs[task.output].occupied_bytes)
    if run.freed_on[task.op] == device:
        return 0.0
    run.freed_on[task.op] = device
    return float(blueprint.outputs[task.op].made_bytes)


@inlined
def _freed(blueprint: Blueprint, run: Run, op: Index, device: int) -> float:
    """The bytes of tensors that are freed on a device when an op there ends: no other reads them later.

    A consumer on the producer's device reads its output, even over an edge with a message of its own.
    """
    freed, reads = 0.0, blueprint.ops[op]
    for i in range(reads.in_start, reads.in_end):
        given = blueprint.inputs[i]
        tensor = run.carried[given.edge]
        if tensor == NONE:
            if run.freed_on[given.producer] != device:
                run.freed_on[given.producer] = device
                freed += blueprint.outputs[given.producer].made_bytes
        elif run.freed_on[tensor] != device:
            run.freed_on[tensor] = device
            freed += blueprint.outputs[run.tasks[tensor].output].occupied_bytes
    if run.freed_on[op] != device:
        run.freed_on[op] = device
        freed += blueprint.outputs[op].made_bytes
    return freed
