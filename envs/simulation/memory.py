"""The memory that tensors take while the engine runs: rule 6 of the simulator."""

from envs.simulation.blueprint import NONE, Blueprint, Index
from envs.simulation.compiled import inlined
from envs.simulation.run import ALLOCATED, TENSORS, Run


@inlined
def allocate(blueprint: Blueprint, run: Run, index: int, where: int) -> None:
    """Hold what a starting task writes: an output, or the copies of one, or of a message."""
    task = run.tasks[index]
    output = blueprint.outputs[task.output]
    if where < blueprint.op_seconds.shape[1]:
        _hold(run, where, output.made_bytes + output.working_bytes)
        return
    copy = task.copies
    while copy != NONE:
        _hold(run, run.tensors[copy].holder, output.occupied_bytes)
        copy = run.tensors[copy].next


@inlined
def add_copy(run: Run, index: Index, there: Index) -> int:
    """A transfer makes one more copy, on a device. Returns the tensor."""
    copy = run.counters[TENSORS]
    run.counters[TENSORS] += 1
    tensor = run.tensors[copy]
    tensor.readers = 0
    tensor.holder = there
    tensor.source = index
    tensor.next = run.tasks[index].copies
    run.tasks[index].copies = copy
    return int(copy)


@inlined
def _hold(run: Run, where: int, size: float) -> None:
    device = run.resources[where]
    device.held += size
    if not device.allocated:
        device.allocated = True
        run.allocated[run.counters[ALLOCATED]] = where
        run.counters[ALLOCATED] += 1


@inlined
def read(blueprint: Blueprint, run: Run, tensor: int, output: int, where: int) -> None:
    """One read of a tensor on a device has ended: the last one frees it. If it is a copy, it is one of `output`.

    A consumer on the producer's device reads its output, even over an edge with a message of its own.
    """
    run.tensors[tensor].readers -= 1
    if run.tensors[tensor].readers == 0:
        is_copy = tensor >= len(blueprint.ops)
        freed = blueprint.outputs[output].occupied_bytes if is_copy else blueprint.outputs[tensor].made_bytes
        run.resources[where].held -= freed


@inlined
def note_peaks(run: Run) -> None:
    """The instant is over, so what is held now counts for the peak."""
    for i in range(run.counters[ALLOCATED]):
        device = run.resources[run.allocated[i]]
        device.allocated = False
        device.peak = max(device.peak, device.held)
    run.counters[ALLOCATED] = 0
