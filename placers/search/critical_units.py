"""Critical units: those that a step waits for, one after another, back from its end.

A search of many units has time for few moves of each, and a step becomes no shorter by a move of what nothing waits
for. So most of its moves begin at a unit of the critical path of the last plan that it kept. Of fewer units these gain
nothing, for there all are tried often.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from envs.simulation.blueprint import NONE, Blueprint
from envs.simulation.compiled import compiled, inlined
from envs.simulation.memory import end_of
from envs.simulation.run import Run
from graphs.op_graph import Bools, Ints

FROM_UNITS = 1024  # of a problem whose moves begin there; up to these it was 0.1 to 0.9% better, within the noise
SHARE = 0.9  # of the moves


class CriticalUnits(NamedTuple):
    """Units that a step waits for: `units[: number[0]]`, the last first; one that does several times is there often."""

    units: Ints  # (units,)
    number: Ints  # (1,)

    @classmethod
    def none(cls, units: int) -> CriticalUnits:
        """Room for those of a problem."""
        return cls(np.zeros(units, np.int64), np.zeros(1, np.int64))


@compiled
def note_critical_units(blueprint: Blueprint, run: Run, allowed: Bools, critical: CriticalUnits) -> None:
    """Write the critical units of a run whose memory was followed, of those that may run on several devices.

    From the op that ends last it goes back to what each waited for: the last input, or what its device did before,
    whichever ended later. `allowed` is (units, devices).
    """
    op = 0
    for other in range(len(blueprint.ops)):
        if end_of(run.tasks[other]) > end_of(run.tasks[op]):
            op = other
    count = 0
    while op != NONE and count < len(critical.units):
        unit = blueprint.ops[op].unit
        is_next = run.tasks[op].seconds > 0.0 and (count == 0 or critical.units[count - 1] != unit)
        if is_next and _may_move(allowed, unit):
            critical.units[count] = unit
            count += 1
        op = _waited_for(blueprint, run, op)
    critical.number[0] = count


@inlined
def _waited_for(blueprint: Blueprint, run: Run, op: int) -> int:
    """The op that an op waited for, or NONE."""
    last, arrival = int(np.int64(NONE)), -1.0
    for i in range(blueprint.ops[op].in_start, blueprint.ops[op].in_end):
        given = blueprint.inputs[i]
        copy = run.carried[given.edge]
        end = end_of(run.tasks[given.producer if copy == NONE else copy])
        if end > arrival:
            last, arrival = int(given.producer), end
    if run.tasks[op].seconds > 0.0:
        before = int(run.tasks[op].before)
        if before != NONE and end_of(run.tasks[before]) >= arrival:
            last = before
    return last


@inlined
def _may_move(allowed: Bools, unit: int) -> bool:
    devices = 0
    for device in range(allowed.shape[1]):
        devices += allowed[unit, device]
    return devices > 1
