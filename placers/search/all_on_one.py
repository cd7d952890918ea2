"""Placements of everything on one device, where they are timed by themselves: what each takes, found once.

In a loop that defers gradients of weights one device alone defers none, since no other waits for any. The simulator
times such placements in an order of issue of their own, of which a search's compiled loop knows nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from envs.simulation.blueprint import Indices
from envs.simulation.compiled import inlined
from envs.simulation.simulator import Simulator
from graphs.op_graph import Floats
from graphs.problem import Problem

NOT_ALONE = -1  # no device


class AllOnOne(NamedTuple):
    """What everything on one device takes; empty where that is timed as any placement is."""

    seconds: Floats  # (devices,)
    peak_bytes: Floats  # (devices, devices)

    @classmethod
    def of(cls, problem: Problem, simulator: Simulator | None) -> AllOnOne:
        """Simulated for each device, in addition to the simulations of a search."""
        devices = len(problem.cluster)
        if simulator is None or not (problem.runtime.streams and problem.runtime.defer):
            return cls(np.zeros(0), np.zeros((0, devices)))
        outcomes = simulator.run_batch(np.repeat(np.arange(devices)[:, None], len(problem.units), axis=1))
        return cls(outcomes.step_seconds, outcomes.peak_bytes)


@inlined
def only_device(alone: AllOnOne, placement: Indices) -> int:
    """The device of all units of a placement, (units,), that is timed by itself; NOT_ALONE for any other."""
    if len(alone.seconds) == 0:
        return NOT_ALONE
    for unit in range(1, len(placement)):
        if placement[unit] != placement[0]:
            return NOT_ALONE
    return int(placement[0])
