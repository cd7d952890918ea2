"""List scheduling, as in HEFT, PEFT, m-ETF and m-SCT: ops are taken one by one, and each is given a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from envs.costs.costs import costs_of
from envs.plans.placer_result import PlacerResult
from envs.simulation.compiled import compiled
from envs.simulation.held_memory import HeldMemory, Room
from envs.simulation.simulator import Simulator
from graphs.cluster import Cluster
from graphs.foundation.by_name import Named
from graphs.op_graph import Bools, Floats, Ints, OpGraph
from graphs.op_graph.paths import longest_remaining
from graphs.problem import Problem

MEMORY_SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)  # of each device's memory to fill, tried in this order


@dataclass(frozen=True, eq=False)
class SchedulingTasks:
    """The ops of a graph as tasks to be scheduled on the devices of a cluster."""

    graph: OpGraph
    cluster: Cluster
    seconds: Floats  # (ops, devices)
    payload: Floats  # (edges,) bytes

    @classmethod
    def of(cls, problem: Problem) -> SchedulingTasks:
        """The tasks of a problem; seconds include launches."""
        seconds = costs_of(problem).busy_seconds(problem)
        return cls(problem.graph, problem.cluster, seconds, problem.graph.carried_bytes)

    def mean_transfers(self) -> Floats:
        """(edges,) mean latency plus the bytes over the mean bandwidth, of distinct devices, in seconds.

        What taking in a message costs its receiver is added to both, as in `link_costs`.
        """
        cluster, pairs = self.cluster, ~np.eye(len(self.cluster), dtype=np.bool_)
        if not pairs.any():
            return np.zeros(len(self.payload))
        latency = cluster.latency[pairs].mean() + cluster.message_seconds.mean()
        bandwidth, per_byte = cluster.bandwidth[pairs].mean(), cluster.message_seconds_per_byte.mean()
        mean: Floats = latency * ~self.graph.control + (self.payload / bandwidth + self.payload * per_byte)
        return mean

    def upward_ranks(self) -> Floats:
        """(ops,) seconds: rank(i) = w(i) + max over successors j of (c(i, j) + rank(j)), equation 5 of HEFT's paper.

        w is the mean over devices, and c the mean transfer.
        """
        return longest_remaining(self.graph, self.seconds.mean(axis=1), self.mean_transfers())

    def static_levels(self) -> Floats:
        """(ops,) seconds: the same without transfers."""
        return longest_remaining(self.graph, self.seconds.mean(axis=1))


class ListSchedule:
    """What a list scheduler plans, op by op, without contention for the channels."""

    def __init__(self, tasks: SchedulingTasks) -> None:
        """Nothing is placed yet."""
        graph, (latency, inverse_bandwidth) = tasks.graph, link_costs(tasks.cluster)
        offsets, by_consumer = graph.predecessors  # compressed rows of the edges into each op
        self.placement = np.full(graph.num_units, -1, np.int64)  # (units,) device, -1 while open
        self.start, self.finish = np.zeros(len(graph)), np.zeros(len(graph))  # (ops,) seconds
        producers = graph.edges[by_consumer, 0]
        self._given = (
            offsets, producers, graph.units[producers], ~graph.control[by_consumer], tasks.payload[by_consumer],
            latency, inverse_bandwidth,
        )  # fmt: skip

    def arrivals(self, op: int) -> Floats:
        """(devices,) when the last input of an op would be on each device, its producers being scheduled."""
        found = np.zeros(len(self._given[-1]))
        _write_arrivals(op, *self._given, self.placement, self.finish, found)
        return found


@compiled
def _write_arrivals(
    op: int, offsets: Ints, producers: Ints, sources: Ints, carries: Bools, payload: Floats, latency: Floats,
    inverse_bandwidth: Floats, placement: Ints, finish: Floats, found: Floats,
) -> None:  # fmt: skip
    """Raise `found`, (devices,), to the largest finish + transfer of an op's inputs; a row is an edge into an op."""
    for row in range(offsets[op], offsets[op + 1]):
        source, ready = placement[sources[row]], finish[producers[row]]
        for device in range(len(found)):
            transfer = carries[row] * latency[source, device] + payload[row] * inverse_bandwidth[source, device]
            found[device] = max(found[device], ready + transfer)


class ListScheduler(Named, ABC):
    """A placer that schedules ops one by one."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The first schedule, unsimulated, with a budget of one: its placement, and its times of start as the order.

        The memory that a schedule holds is estimated. With a larger budget, schedules that turn out not to fit are made
        again with less of each device's memory to fill, as often as the budget allows: not with a share of it that the
        last one left free on each device, since it would be made again as it is.
        """
        held, tasks, simulations = HeldMemory.of(problem), SchedulingTasks.of(problem), 0
        filled: Floats | None = None  # (devices,) bytes, by the last schedule
        for share in MEMORY_SHARES[: max(budget, 1)]:
            if filled is not None and (filled <= share * held.limits).all():
                continue
            planned = self.schedule(tasks, Room(held, share))
            filled = held.on_devices(planned.placement)
            placement = problem.made_allowed(planned.placement)
            if budget <= 1:
                break
            simulations += 1
            if Simulator(problem, order=planned.start).run(placement).fits:
                break
        return PlacerResult.of_units(problem, placement, self.name, seed, order=planned.start, simulations=simulations)

    @abstractmethod
    def schedule(self, tasks: SchedulingTasks, room: Room) -> ListSchedule:
        """Place every unit of a graph; `room` is the memory to fill."""


def link_costs(cluster: Cluster) -> tuple[Floats, Floats]:
    """Latency and seconds per byte until an idle receiver has a message, (devices, devices); 0 within a device.

    That a message holds its sender, or a receiver that is busy, no list scheduler counts.
    """
    apart = ~np.eye(len(cluster), dtype=np.bool_)
    per_byte = np.divide(1.0, cluster.bandwidth, out=np.zeros(apart.shape), where=apart)
    per_byte += apart * cluster.message_seconds_per_byte
    return np.where(apart, cluster.latency + cluster.message_seconds, 0.0), per_byte


def by_urgency(graph: OpGraph, urgency: Floats) -> Ints:
    """(ops,) ops by decreasing urgency, (ops,); equal ones stay in topological order."""
    order = graph.topological_order
    return order[np.argsort(-urgency[order], kind="stable")]


def devices_with_room(left: Floats) -> list[int]:
    """The devices with room, given the bytes left on each, (devices,); or the one that overflows least."""
    return np.flatnonzero(left >= 0).tolist() or [int(left.argmax())]
