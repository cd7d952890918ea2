"""Scarce memory: devices have little more than the plan needs that needs least, of all that a short search finds.

Most placements then do not fit, and those that do balance bytes over the devices rather than seconds.
"""

from dataclasses import replace

import numpy as np

from envs.simulation.simulator import Simulator
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from training.problems.random.random_cluster import log_uniform

ROOM = 1.02, 1.5  # memory over what that plan needs; its logarithm is uniform
UNEVEN = 0.4  # of the clusters without limits of memory, that get unequal ones
LARGER = 4.0  # by which the memory of one of those is at most that of another
ROUNDS, MOVES = 24, 24  # of the search, each from the best plan so far, and plans that are tried in each
OPS = 400_000  # to simulate in all rounds: the search for a large graph is shorter
TINY = 1e-30  # of what nothing takes any memory
EVENNESS = 12  # exponent in a sum over the devices: nearly the fullest alone, but of several full ones each counts


def with_scarce_memory(problem: Problem, rng: np.random.Generator) -> Problem:
    """The problem, with the memory of all devices multiplied by one factor: a plan fits, and not many do.

    Devices of a cluster without limits of memory get some, equal or up to 4 times that of another.
    """
    cluster = problem.cluster.unreserved
    capacity = cluster.memory_bytes
    if not np.isfinite(capacity).all():
        spread = np.log(LARGER) if rng.random() < UNEVEN else 0.0
        capacity = np.exp(rng.random(len(capacity)) * spread)
    needed = least_fullness(problem, capacity, rng)
    room = np.maximum(capacity * needed * log_uniform(rng, *ROOM), 1.0)
    devices = [replace(each, memory_bytes=own) for each, own in zip(cluster.devices, room.tolist(), strict=True)]
    return replace(problem, cluster=replace(cluster, devices=tuple(devices)))


def least_fullness(problem: Problem, capacity: Floats, rng: np.random.Generator) -> float:
    """How full, as a multiple of `capacity`, (devices,) bytes, the fullest device is under the least plan found.

    Stages of consecutive units, and packings of the largest units first, are improved by moving units off the fullest
    device.
    """
    simulator, units = Simulator(problem), len(problem.units)
    plans = np.stack(list(_packings(problem, capacity)))
    best, least = plans[0], np.full(len(capacity), np.inf)
    rounds = int(np.clip(OPS / (MOVES * len(problem.graph)), 2, ROUNDS))
    for _ in range(1 + rounds):
        fullness = simulator.run_batch(plans).peak_bytes / capacity
        fullness = np.concatenate([least[None], fullness])
        scale = max(fullness[1:].max(), TINY)
        found = int(((fullness / scale) ** EVENNESS).sum(axis=1).argmin())
        if found:
            best, least = plans[found - 1], fullness[found]
        movable = np.flatnonzero(best == least.argmax())
        plans = np.repeat(best[None], MOVES, axis=0)
        emptiest = np.argsort(least)[: max(len(capacity) // 2, 1)]
        plans[np.arange(MOVES), rng.choice(movable, MOVES)] = rng.choice(emptiest, MOVES)
    assert len(best) == units
    return float(least.max())


def _packings(problem: Problem, capacity: Floats) -> list[Ints]:
    """(units,) placements by bytes of weights with their state, of outputs, and of both."""
    units = problem.units
    weights, outputs = units.weight_bytes(problem.weight_state_bytes), units.summed(problem.graph.output_bytes)
    found = []
    for sizes in (weights + outputs, weights, outputs):
        found += [_stages(sizes, units.order, capacity), _largest_first(sizes, capacity)]
    return found


def _stages(sizes: Floats, order: Ints, capacity: Floats) -> Ints:
    """(units,) consecutive units in an order, (units,), on each device, whose bytes are in proportion to its memory."""
    placement = np.zeros(len(sizes), np.int64)
    middle = (np.cumsum(sizes[order]) - sizes[order] / 2) / max(sizes.sum(), 1e-30)
    ends = np.cumsum(capacity / capacity.sum())
    placement[order] = np.minimum(np.searchsorted(ends, middle, side="right"), len(capacity) - 1)
    return placement


def _largest_first(sizes: Floats, capacity: Floats) -> Ints:
    """(units,) each unit on the device that is then least full, the largest units first."""
    placement, load = np.zeros(len(sizes), np.int64), np.zeros(len(capacity))
    for unit in np.argsort(-sizes, kind="stable").tolist():
        placement[unit] = ((load + sizes[unit]) / capacity).argmin()
        load[placement[unit]] += sizes[unit]
    return placement
