"""If devices and channels work through a given order, times follow from a recurrence, for many placements at once.

Each device takes its ops, and each channel its transfers, in one order of all ops, and waits where the next one is
not ready; the simulator's devices take what is ready instead. So the recurrence gives the step time of another rule:
it could rank placements for a search if both agree on which is better.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit
from scipy.stats import kendalltau

from envs.simulation.simulator import Simulator
from graphs.op_graph import Floats, Ints
from tests.benchmarks.figures import Figure, least_seconds, reported
from tests.benchmarks.workloads import DEVICES, placements, problem


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def step_seconds(
    order: Ints, offsets: Ints, consumers: Ints, placements: Ints, op_seconds: Floats, send_seconds: Floats,
    launch: float, gap: float,
) -> Floats:  # fmt: skip
    """(plans,) seconds of (ops, plans) devices, each with one outgoing multicast bus. Plans are the innermost loop."""
    ops, plans = placements.shape
    devices = op_seconds.shape[1]
    ready = np.zeros((ops, plans))
    free, bus = np.zeros((devices, plans)), np.zeros((devices, plans))
    end, sent, arrival = np.zeros(plans), np.zeros(plans, np.bool_), np.zeros(plans)
    for op in order:
        for plan in range(plans):
            here = placements[op, plan]
            seconds = op_seconds[op, here]
            finish = max(free[here, plan], ready[op, plan]) + seconds
            ready[op, plan] = finish
            free[here, plan] = finish + (launch if seconds > 0 else 0.0)
            end[plan] = max(end[plan], finish)
            arrival[plan] = max(bus[here, plan], finish) + send_seconds[op]
            sent[plan] = False
        for edge in range(offsets[op], offsets[op + 1]):
            consumer = consumers[edge]
            for plan in range(plans):
                away = placements[consumer, plan] != placements[op, plan]
                sent[plan] |= away
                there = arrival[plan] if away else ready[op, plan]
                ready[consumer, plan] = max(ready[consumer, plan], there)
        for plan in range(plans):
            here = placements[op, plan]
            bus[here, plan] = arrival[plan] + gap if sent[plan] else bus[here, plan]
    return end


class GivenOrder:
    """The recurrence for one problem on devices that are all alike, with one outgoing multicast bus each."""

    def __init__(self, simulator: Simulator) -> None:
        graph, cluster = simulator.problem.graph, simulator.problem.cluster
        self._offsets, edges = graph.successors
        self._consumers = graph.edges[edges, 1]
        self._op_seconds = simulator.costs.op_seconds
        self._send_seconds = graph.output_bytes / cluster.bandwidth[0, 1]
        self._holds = (float(cluster.hold_seconds[0]), float(cluster.gap[0]))

    def step_seconds(self, order: Ints, by_op: Ints) -> Floats:
        """(plans,) seconds of placements, (ops, plans) devices, in a topological order of the ops."""
        seconds: Floats = step_seconds(
            order, self._offsets, self._consumers, by_op, self._op_seconds, self._send_seconds, *self._holds
        )
        return seconds


def measure(ops: int = 500, plans: int = 256) -> Iterator[Figure]:
    """How much faster the recurrence is, and how well its ranking of placements agrees with the simulator's.

    The order is that in which the simulator starts the ops of one of the placements.
    """
    simulator = Simulator(problem(ops), order="fifo")
    recurrence = GivenOrder(simulator)
    drawn = placements(ops, plans)
    order = np.argsort(simulator.timeline(drawn[0]).start, kind="stable")
    by_op = np.ascontiguousarray(drawn.T)
    ours, theirs = least_seconds(
        lambda: simulator.seconds(drawn), lambda: recurrence.step_seconds(order, by_op), rounds=7
    )
    yield reported(f"simulator / recurrence in a given order, {ops} ops", ours / theirs)
    moved = np.repeat(drawn[:1], plans, axis=0)
    rng = np.random.default_rng(2)
    moved[np.arange(plans), rng.integers(0, ops, plans)] = rng.integers(0, DEVICES, plans)
    for what, some in (("random placements", drawn), ("one op moved", moved)):
        guess = recurrence.step_seconds(order, np.ascontiguousarray(some.T))
        agreement = kendalltau(guess, simulator.seconds(some)).statistic
        yield reported(f"rank correlation of the two, {what}", float(agreement), "")
