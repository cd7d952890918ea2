"""How long devices may be idle before a placement is slower than a limit, however the rest of its step goes.

A device does all its ops that take time one after another, so a step takes at least what they take together and the
time for which the device was idle before the last of them:

device   | op |  idle  | op |op| idle | op |        a step >= work + idle, known as soon as it has been idle so long

Most changes of a good placement are too slow by some percent, and are given up at half of a simulation or before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from envs.simulation.blueprint import Indices
from envs.simulation.compiled import inlined
from graphs.op_graph import Floats
from graphs.problem import Problem
from placers.search.moves import MoveTables

MARGIN = 1e-9  # share of a limit that sums in another order may differ by, and more


class BusyTimes(NamedTuple):
    """What the devices do under a placement, in seconds, and what every unit adds to that."""

    unit_seconds: Floats  # (units, devices) that a unit occupies each device for
    launch_seconds: Floats  # (devices,) for which a device is held after an op: after the last one they do not count
    placed: Floats  # (devices,) of the placement
    moved: Floats  # (devices,) of the placement after a move

    @classmethod
    def of(cls, problem: Problem, op_seconds: Floats) -> BusyTimes:
        """That of a problem whose ops take some seconds on each device, (ops, devices)."""
        launch = problem.hold_seconds
        occupied = op_seconds + launch * (op_seconds > 0.0)
        return cls(problem.units.summed(occupied), launch.copy(), np.zeros(len(launch)), np.zeros(len(launch)))


@inlined
def add_up(work: BusyTimes, placement: Indices) -> None:
    """Sum the work of a placement, (units,)."""
    for device in range(len(work.placed)):
        work.placed[device] = 0.0
    for unit in range(len(placement)):
        work.placed[placement[unit]] += work.unit_seconds[unit, placement[unit]]


@inlined
def follow_move(work: BusyTimes, tables: MoveTables, placement: Indices, changed: int) -> None:
    """Update the work after a move that changed `changed` units."""
    for device in range(len(work.placed)):
        work.moved[device] = work.placed[device]
    for i in range(changed):
        unit = tables.changed[i]
        work.moved[tables.before[i]] -= work.unit_seconds[unit, tables.before[i]]
        work.moved[placement[unit]] += work.unit_seconds[unit, placement[unit]]


@inlined
def keep_move(work: BusyTimes) -> None:
    """Let the placement after the move be the placement."""
    for device in range(len(work.placed)):
        work.placed[device] = work.moved[device]


@inlined
def allow_idling(work: BusyTimes, limit: float, may_idle: Floats) -> bool:
    """Write how long each device may be idle, (devices,), in a step within a limit of seconds; False if none can be."""
    can_be = True
    for device in range(len(may_idle)):
        may_idle[device] = limit * (1.0 + MARGIN) - work.moved[device] + work.launch_seconds[device]
        can_be = can_be and may_idle[device] >= 0.0
    return can_be
