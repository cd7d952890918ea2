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
from graphs.op_graph import Bools, Floats, Ints
from placers.solvers.list_scheduling import ListScheduler, Schedule, Tasks, devices_with_room


@dataclass(frozen=True)
class EarliestTaskFirst(ListScheduler):
    """Whatever can start first, where it can."""

    def schedule(self, tasks: Tasks, room: Room) -> Schedule:
        """No device waits while an op can run."""
        return earliest_task_first(tasks, room)


build = EarliestTaskFirst


class Reservations(Protocol):
    """Devices that wait for a certain op instead of running what could start first."""

    def delayed(self, starts: Floats, ops: list[int], everywhere: Floats) -> Floats:
        """(ops, devices) when each op may start on each device: `starts`, or later where the device waits.

        `everywhere` (ops,) is when the inputs of each op are on all devices.
        """
        ...

    def renew(self, op: int, device: int, finish: float, placement: Ints, room: Room) -> Bools:
        """(devices,) which stop waiting as `op` will end on `device` at `finish`; placement is (units,), -1 if open."""
        ...


def earliest_task_first(tasks: Tasks, room: Room, reservations: Reservations | None = None) -> Schedule:
    """Place every unit of a graph; `room` is the memory to fill."""
    graph, devices, planned = tasks.graph, len(tasks.cluster), Schedule(tasks)
    out_offsets, by_producer = graph.successors  # compressed rows of the edges out of each op
    rank = np.argsort(graph.topological_order).tolist()  # (ops,) position
    free = np.zeros(devices)  # (devices,) seconds at which each has run all ops that it was given
    arrivals = np.zeros((len(graph), devices))  # (ops, devices) when the inputs of a ready op are on each
    waiting = np.bincount(graph.edges[:, 1], minlength=len(graph))
    ready = sorted(np.flatnonzero(waiting == 0).tolist(), key=rank.__getitem__)
    barred = np.zeros((len(graph), devices))  # (ops, devices) infinite where an op may not go
    # the ops of each unit: once one of them is placed, the others are barred everywhere else
    members = np.split(np.argsort(graph.units, kind="stable"), np.cumsum(np.bincount(graph.units))[:-1])
    # one pair of a ready op and a device per round: a row of `starts` per ready op, in topological order, so that the
    # first of the least entries is also the op that comes first
    while ready:
        starts = np.maximum(arrivals[ready], free)
        if reservations is not None:
            starts = reservations.delayed(starts, ready, arrivals[ready].max(axis=1))
        row, device = divmod(int((starts + barred[ready]).argmin()), devices)
        op = ready[row]
        unit = graph.units[op]
        if planned.placement[unit] < 0:
            allowed = devices_with_room(room.after(unit))
            if device not in allowed:  # no room there: ask again without it
                barred[op] = np.inf
                barred[op, allowed] = 0.0
                continue
            planned.placement[unit] = device
            room.take(unit, device)
            barred[members[unit]] = np.inf
            barred[members[unit], device] = 0.0
        del ready[row]
        planned.start[op] = starts[row, device]
        free[device] = planned.finish[op] = starts[row, device] + tasks.seconds[op, device]
        if reservations is not None:
            given_up = reservations.renew(op, device, float(free[device]), planned.placement, room)
            free[given_up] = np.maximum(free[given_up], starts[row, device])  # time that has passed is lost
        for consumer in graph.edges[by_producer[out_offsets[op] : out_offsets[op + 1]], 1].tolist():
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                arrivals[consumer] = planned.arrivals(consumer)
                insort(ready, consumer, key=rank.__getitem__)
    return planned
