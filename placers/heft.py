"""HEFT: heterogeneous earliest finish time, with insertion into idle gaps (Topcuoglu, Hariri and Wu 2002).

Ops are taken in the order of their upward rank, the longest path of mean computation and mean communication from an op
to the end of the step, and each goes to the device that can finish it first. What the paper has no word for is our
choice: tied ops follow the first of them that is placed (backward ops follow their forward op), a device is held for a
launch after each op, and devices that could not hold a unit's parameters and kept outputs are passed over as long as
another one can.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from envs.costs.costs import costs_of
from envs.held_memory import HeldMemory, Room
from envs.placer_result import PlacerResult
from envs.simulation.simulator import Simulator
from graphs.cluster import Cluster
from graphs.foundation.by_name import Named
from graphs.op_graph import Floats, Ints, OpGraph
from graphs.problem import Problem

MEMORY_SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)  # of each device's memory to fill, tried in turn until the plan fits


@dataclass(frozen=True)
class Heft(Named):
    """Each op to the device that finishes it first, most urgent op first."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The first schedule, unsimulated, with a budget of one.

        The memory held by a schedule is estimated. With a larger budget, schedules that turn out not to fit are made
        again with less of each device's memory to fill, as often as the budget allows.
        """
        return place_within_memory(problem, self.name, seed, budget, schedule)


def place_within_memory(problem: Problem, name: str, seed: int, budget: int, scheduler: Scheduler) -> PlacerResult:
    """What a scheduler makes of a problem, again with less memory to fill for as long as it does not fit."""
    simulator, graph = Simulator(problem), problem.graph
    held = HeldMemory.of(problem)
    seconds = costs_of(problem).busy_seconds(problem.cluster)
    for share in MEMORY_SHARES[: max(budget, 1)]:
        planned = scheduler(graph, problem.cluster, seconds, graph.carried_bytes, Room(held, share)).placement
        placement = problem.made_allowed(planned)
        if budget <= 1 or simulator.run(placement).fits:
            break
    return PlacerResult.of_units(problem, placement, name, seed, simulations=simulator.simulations)


class Scheduler(Protocol):
    """A way to place every unit of a graph: see `schedule`."""

    def __call__(self, graph: OpGraph, cluster: Cluster, seconds: Floats, payload: Floats, room: Room, /) -> Schedule:
        """The schedule."""
        ...


@dataclass(frozen=True, eq=False)
class Schedule:
    """What HEFT plans, without contention for the channels."""

    placement: Ints  # (units,) device
    start: Floats  # (ops,) seconds
    finish: Floats  # (ops,) seconds


build = Heft


def schedule(
    graph: OpGraph, cluster: Cluster, seconds: Floats, payload: Floats, room: Room, *,
    order: Ints | None = None, outlook: Floats | None = None,
) -> Schedule:  # fmt: skip
    """Place every unit of a graph.

    `seconds` is (ops, devices), `payload` (edges,) the bytes that an edge carries, and `room` the memory to fill. Ops
    are taken in topological `order`, by upward rank unless given, and each goes where its finish plus its `outlook`
    there, (ops, devices) seconds or nothing, is least.
    """
    order = most_urgent_first(graph, cluster, seconds, payload) if order is None else order
    outlook = np.zeros_like(seconds) if outlook is None else outlook
    latency, inverse_bandwidth = link_costs(cluster)
    carries = ~graph.control
    offsets, by_consumer = graph.predecessors
    placement = np.full(graph.num_units, -1, np.int64)
    idle = [IdleTime() for _ in cluster.devices]
    start, finish = np.zeros(len(graph)), np.zeros(len(graph))
    for op in order.tolist():
        unit = graph.units[op]
        inputs = by_consumer[offsets[op] : offsets[op + 1]]
        producers = graph.edges[inputs, 0]
        sources = placement[graph.units[producers]]
        transfer = carries[inputs, None] * latency[sources] + payload[inputs, None] * inverse_bandwidth[sources]
        ready = (finish[producers, None] + transfer).max(axis=0, initial=0.0)
        devices = devices_with_room(room.after(unit)) if placement[unit] < 0 else [int(placement[unit])]
        starts = [idle[device].earliest(ready[device], seconds[op, device]) for device in devices]
        ends = [begin + seconds[op, at] + outlook[op, at] for begin, at in zip(starts, devices, strict=True)]
        best = ends.index(min(ends))
        device, start[op] = devices[best], starts[best]
        finish[op] = start[op] + seconds[op, device]
        idle[device].take(start[op], seconds[op, device])
        if placement[unit] < 0:
            placement[unit] = device
            room.take(unit, device)
    return Schedule(placement, start, finish)


def most_urgent_first(graph: OpGraph, cluster: Cluster, seconds: Floats, payload: Floats) -> Ints:
    """(ops,) ops by decreasing upward rank; ties in topological order."""
    ranks = upward_ranks(graph, cluster, seconds, payload)[graph.topological_order]
    order: Ints = graph.topological_order[np.argsort(-ranks, kind="stable")]
    return order


def upward_ranks(graph: OpGraph, cluster: Cluster, seconds: Floats, payload: Floats) -> Floats:
    """(ops,) seconds: rank(i) = w(i) + max over successors j of (c(i, j) + rank(j)), equation 5 of the paper.

    w is the mean over devices, and c the mean latency plus the bytes over the mean bandwidth, of distinct devices.
    """
    mean_transfer = mean_transfers(graph, cluster, payload)
    ranks: Floats = seconds.mean(axis=1)
    offsets, by_producer = graph.successors
    consumers, costs = graph.edges[by_producer, 1], mean_transfer[by_producer]
    for op in graph.topological_order[::-1].tolist():
        out = slice(offsets[op], offsets[op + 1])
        ranks[op] += (costs[out] + ranks[consumers[out]]).max(initial=0.0)
    return ranks


def mean_transfers(graph: OpGraph, cluster: Cluster, payload: Floats) -> Floats:
    """(edges,) mean latency plus the bytes over the mean bandwidth, of distinct devices."""
    pairs = ~np.eye(len(cluster), dtype=np.bool_)
    if not pairs.any():
        return np.zeros(len(graph.edges))
    mean: Floats = cluster.latency[pairs].mean() * ~graph.control + payload / cluster.bandwidth[pairs].mean()
    return mean


class IdleTime:
    """When one device is idle: disjoint gaps in order of time, the last of which never ends."""

    def __init__(self) -> None:
        self._starts = [0.0]
        self._ends = [np.inf]

    def earliest(self, ready: float, seconds: float) -> float:
        """The earliest start, from `ready` on, of something that takes so many seconds without a break."""
        gap = bisect_left(self._ends, ready)
        while (start := max(self._starts[gap], ready)) + seconds > self._ends[gap]:
            gap += 1
        return start

    def take(self, start: float, seconds: float) -> None:
        """Be busy from `start` on, a time that `earliest` gave for so many seconds."""
        if seconds == 0:
            return
        gap = bisect_left(self._ends, start + seconds)
        rest = [(self._starts[gap], start), (start + seconds, self._ends[gap])]
        kept = [(begin, end) for begin, end in rest if begin < end]
        self._starts[gap : gap + 1] = [begin for begin, _ in kept]
        self._ends[gap : gap + 1] = [end for _, end in kept]


def link_costs(cluster: Cluster) -> tuple[Floats, Floats]:
    """Latency and seconds per byte, (devices, devices) each, with nothing to pay within a device."""
    apart = ~np.eye(len(cluster), dtype=np.bool_)
    return np.where(apart, cluster.latency, 0.0), np.divide(
        1.0, cluster.bandwidth, out=np.zeros(apart.shape), where=apart
    )


def devices_with_room(left: Floats) -> list[int]:
    """The devices with room, or the one that overflows least."""
    return np.flatnonzero(left >= 0).tolist() or [int(left.argmax())]
