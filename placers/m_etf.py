"""m-ETF (Jeon et al. 2020, "Baechi"): of all ready ops and devices with room, the pair that starts first.

Earliest task first (Hwang et al. 1989) with memory. Ties go to the op that comes first in topological order. Tied ops
follow the first of them that is placed, and launches count, as in HEFT.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from envs.held_memory import Room
from envs.placer_result import PlacerResult
from graphs.cluster import Cluster
from graphs.foundation.by_name import Named
from graphs.op_graph import Bools, Floats, Ints, OpGraph
from graphs.problem import Problem
from placers.solvers.list_scheduling import Schedule, devices_with_room, link_costs, place_within_memory


@dataclass(frozen=True)
class EarliestTaskFirst(Named):
    """Whatever can start first, where it can."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The first schedule, unsimulated, with a budget of one; with more, as HEFT does."""
        return place_within_memory(problem, self.name, seed, budget, earliest_task_first)


build = EarliestTaskFirst


class Reservations(Protocol):
    """Devices that wait for an op to come instead of running what could start first."""

    def delayed(self, starts: Floats, ops: list[int], everywhere: Floats) -> Floats:
        """(ops, devices) when each op may start on each device, at the `starts` given or later.

        `everywhere` (ops,) is when the inputs of each op are on all devices.
        """
        ...

    def renew(self, op: int, device: int, finish: float, placement: Ints, room: Room) -> Bools:
        """(devices,) which devices wait no longer, now that the op is scheduled; placement is (units,), -1 if open."""
        ...


def earliest_task_first(
    graph: OpGraph, cluster: Cluster, seconds: Floats, payload: Floats, room: Room, *,
    reservations: Reservations | None = None,
) -> Schedule:  # fmt: skip
    """Place every unit of a graph; the arguments are those of `placers.heft.schedule`."""
    latency, inverse_bandwidth = link_costs(cluster)  # (devices, devices) seconds, and seconds per byte
    in_offsets, by_consumer = graph.predecessors  # compressed rows of the edges into each op, and out of it
    out_offsets, by_producer = graph.successors
    rank = np.empty(len(graph), np.int64)
    rank[graph.topological_order] = np.arange(len(graph))
    placement = np.full(graph.num_units, -1, np.int64)  # (units,) device, -1 while open
    # free: (devices,) when each has run all it was given; start, finish: (ops,); all in seconds
    free, start, finish = np.zeros(len(cluster)), np.zeros(len(graph)), np.zeros(len(graph))
    arrivals = np.zeros((len(graph), len(cluster)))  # (ops, devices) when the inputs of a ready op are on each
    waiting = np.bincount(graph.edges[:, 1], minlength=len(graph))
    ready = sorted(np.flatnonzero(waiting == 0).tolist(), key=lambda op: rank[op])
    barred = np.zeros((len(graph), len(cluster)))  # (ops, devices) infinite where an op may not go
    # the ops of each unit: once one of them is placed, the others are barred everywhere else
    members = np.split(np.argsort(graph.units, kind="stable"), np.cumsum(np.bincount(graph.units))[:-1])
    # one pair of a ready op and a device per round: a row of `starts` per ready op, in topological order, so that the
    # first of the least entries is also the op that comes first
    while ready:
        starts = np.maximum(arrivals[ready], free)
        if reservations is not None:
            starts = reservations.delayed(starts, ready, arrivals[ready].max(axis=1))
        row, device = divmod(int((starts + barred[ready]).argmin()), len(cluster))
        op = ready[row]
        unit = graph.units[op]
        if placement[unit] < 0:
            allowed = devices_with_room(room.after(unit))
            if device not in allowed:  # no room there: ask again without it
                barred[op] = np.inf
                barred[op, allowed] = 0.0
                continue
            placement[unit] = device
            room.take(unit, device)
            barred[members[unit]] = np.inf
            barred[members[unit], device] = 0.0
        del ready[row]
        start[op] = starts[row, device]
        free[device] = finish[op] = start[op] + seconds[op, device]
        if reservations is not None:
            given_up = reservations.renew(op, device, float(finish[op]), placement, room)
            free[given_up] = np.maximum(free[given_up], start[op])  # time that has passed is lost
        for consumer in graph.edges[by_producer[out_offsets[op] : out_offsets[op + 1]], 1].tolist():
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                inputs = by_consumer[in_offsets[consumer] : in_offsets[consumer + 1]]
                producers = graph.edges[inputs, 0]
                sources = placement[graph.units[producers]]
                carried = ~graph.control[inputs, None] * latency[sources]
                carried = carried + payload[inputs, None] * inverse_bandwidth[sources]
                arrivals[consumer] = (finish[producers, None] + carried).max(axis=0)
                insort(ready, consumer, key=lambda op: rank[op])
    return Schedule(placement, start, finish)
