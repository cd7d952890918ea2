"""Early stop: a search could give up a simulation once the placement is certain to be slower than the current one.

It is certain when an op starts so late that the longest path behind it, without any transfer, ends after that. Without
a bound on what the placement still has to send, no exact method knows it earlier.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from envs.simulation.simulator import Simulator
from graphs.op_graph import Ints
from graphs.op_graph.paths import longest_remaining
from placers.metis import Metis
from tests.benchmarks.figures import Figure, reported
from tests.benchmarks.workloads import captured


def measure(graphs: Sequence[str] = ("bert:bert-base", "gnmt:gnmt-2"), moves: int = 100) -> Iterator[Figure]:
    """Of placements one unit away from METIS's, those that are slower, and the tasks that would not be simulated."""
    for graph in graphs:
        simulator = Simulator(captured(graph), order="fifo")
        problem, rng = simulator.problem, np.random.default_rng(0)
        placement = Metis().place(problem, budget=0).plan.per_unit(problem)
        limit, saved = simulator.run(placement).step_seconds, []
        for _ in range(moves):
            moved = placement.copy()
            unit = rng.integers(len(moved))
            moved[unit] = (moved[unit] + rng.integers(1, len(problem.cluster))) % len(problem.cluster)
            saved.append(share_saved(simulator, moved, limit))
        yield reported(f"share of a run that an early stop saves, {graph}", float(np.mean(saved)), "")


def share_saved(simulator: Simulator, placement: Ints, limit: float) -> float:
    """The share of tasks that start after it is certain that the step takes longer than `limit` seconds."""
    timeline = simulator.timeline(placement)
    seconds = timeline.finish - timeline.start
    ends_after = timeline.start + longest_remaining(simulator.problem.graph, seconds)
    certain = timeline.start[ends_after > limit * (1 + 1e-9)].min(initial=np.inf)
    starts = np.concatenate([timeline.start, timeline.transfers.start])
    return float(np.mean(starts > certain))
