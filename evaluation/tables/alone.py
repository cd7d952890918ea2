"""The whole problem on one device alone: what any plan for several devices is compared with first."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from envs.costs.costs import costs_of
from envs.simulation.simulator import Simulator
from graphs.op_graph import Ints
from graphs.problem import Problem

_KEPT = 8  # problems: a report asks for the same one in several places


class Alone(NamedTuple):
    """The fastest device that holds everything."""

    device: str
    seconds: float  # of a step there
    too_small: tuple[str, ...] = ()  # devices that would be faster, and do not hold everything; one of each kind


def all_on_one(problem: Problem) -> Ints:
    """(devices that may run everything, units) placements: all on the first of them, all on the second, and so on."""
    devices = np.arange(len(problem.cluster))
    if problem.allowed is not None:
        devices = devices[problem.allowed.all(axis=0)]
    return np.repeat(devices[:, None], problem.graph.num_units, axis=1)


@lru_cache(_KEPT)
def fastest_alone(problem: Problem) -> Alone | None:
    """The device on which the whole step is fastest, among those that hold it; None if none does.

    Raises InputError as `costs_of` does.
    """
    placements, cluster = all_on_one(problem), problem.cluster
    devices = placements[:, 0]
    alike = np.vstack([costs_of(problem).op_seconds, cluster.memory_bytes, problem.hold_seconds])[:, devices]
    first = np.unique(alike, axis=1, return_index=True)[1]  # of each kind of device
    if not len(first):
        return None
    outcomes = Simulator(problem).run_batch(placements[first])
    seconds = np.where(outcomes.fits, outcomes.step_seconds, np.inf)
    best = int(seconds.argmin())
    if not np.isfinite(seconds[best]):
        return None
    faster = np.flatnonzero(outcomes.step_seconds < seconds[best])
    name = [cluster.devices[device].name for device in devices[first].tolist()]
    return Alone(name[best], float(seconds[best]), tuple(name[each] for each in faster.tolist()))
