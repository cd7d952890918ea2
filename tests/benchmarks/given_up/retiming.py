"""Re-timing after one op has moved: how much of a run comes after the first thing that the move can change.

Until the earliest producer of the op ends, both runs are the same: no exact method can save more than that.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from envs.simulation.simulator import Simulator
from envs.timelines.timeline import Timeline
from tests.benchmarks.figures import Figure, reported
from tests.benchmarks.workloads import DEVICES, placements, problem


def measure(ops: int = 500, plans: int = 20) -> Iterator[Figure]:
    """The mean over all ops of the share of a run's tasks that start at or after the move takes effect."""
    simulator = Simulator(problem(ops), order="fifo")
    after, changed = [], []
    rng = np.random.default_rng(1)
    for placement in placements(ops, plans):
        before = simulator.timeline(placement)
        starts = np.sort(np.concatenate([before.start, before.transfers.start]))
        effective = _first_effects(before)
        after.append(1 - np.searchsorted(starts, effective, side="left") / len(starts))
        for op in rng.integers(0, ops, 10):
            moved = placement.copy()
            moved[op] = (moved[op] + rng.integers(1, DEVICES)) % DEVICES
            changed.append(np.mean(simulator.timeline(moved).start != before.start))
    yield reported(f"share of a run that a moved op can change, {ops} ops", float(np.mean(after)), "")
    yield reported(f"share of ops whose start it does change, {ops} ops", float(np.mean(changed)), "")


def _first_effects(timeline: Timeline) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """(ops,) seconds at which a move of each op takes effect: when the first of its producers ends."""
    earliest = np.full(len(timeline.start), np.inf)
    producer, consumer = timeline.problem.graph.edges.T
    np.minimum.at(earliest, consumer, timeline.finish[producer])
    return np.where(np.isinf(earliest), 0.0, earliest)
