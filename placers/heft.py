"""HEFT: heterogeneous earliest finish time, with insertion into idle gaps (Topcuoglu, Hariri and Wu 2002).

Ops are taken in the order of their upward rank, the longest path of mean computation and mean communication from an op
to the end of the step, and each goes to the device that can finish it first. What the paper leaves open is our
choice: tied ops follow the first of them that is placed (backward ops follow their forward op), each in a time of its
own; a device is held for a launch after each op; ops that take no time need no device; and devices that could not hold
a unit's parameters and kept outputs are skipped if another can.
"""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from envs.simulation.held_memory import Room
from graphs.op_graph import Floats, Ints
from placers.solvers.list_scheduling import ListSchedule, ListScheduler, SchedulingTasks, by_urgency, devices_with_room


@dataclass(frozen=True)
class Heft(ListScheduler):
    """Each op to the device that finishes it first, most urgent op first."""

    def schedule(self, tasks: SchedulingTasks, room: Room) -> ListSchedule:
        """Ops are taken by decreasing upward rank; ties in topological order."""
        by_rank = by_urgency(tasks.graph, tasks.upward_ranks())
        return earliest_finish(tasks, room, by_rank, np.zeros_like(tasks.seconds))


build = Heft


def earliest_finish(tasks: SchedulingTasks, room: Room, order: Ints, outlook: Floats) -> ListSchedule:
    """Place every unit of a graph.

    Ops are taken in topological `order`, (ops,), and each goes where its finish plus its `outlook` there, (ops,
    devices) seconds, is least. `room` is the memory to fill.
    """
    graph, seconds, planned = tasks.graph, tasks.seconds, ListSchedule(tasks)
    placement = planned.placement
    idle = [IdleTime() for _ in tasks.cluster.devices]
    for op in order.tolist():
        unit = graph.units[op]
        ready = planned.arrivals(op)
        devices = devices_with_room(room.after(unit)) if placement[unit] < 0 else [int(placement[unit])]
        starts = [idle[device].earliest(ready[device], seconds[op, device]) for device in devices]
        ends = [begin + seconds[op, at] + outlook[op, at] for begin, at in zip(starts, devices, strict=True)]
        best = ends.index(min(ends))
        device, start = devices[best], starts[best]
        planned.start[op], planned.finish[op] = start, start + seconds[op, device]
        idle[device].take(start, seconds[op, device])
        if placement[unit] < 0:
            placement[unit] = device
            room.take(unit, device)
    return planned


class IdleTime:
    """When one device is idle: disjoint gaps in order of time, the last of which never ends."""

    def __init__(self) -> None:
        self._starts = [0.0]
        self._ends = [np.inf]

    def earliest(self, ready: float, seconds: float) -> float:
        """The earliest start, not before `ready`, of an op that takes `seconds`; `ready` if it takes none."""
        if seconds == 0:
            return ready
        gap = bisect_left(self._ends, ready)
        while (start := max(self._starts[gap], ready)) + seconds > self._ends[gap]:
            gap += 1
        return start

    def take(self, start: float, seconds: float) -> None:
        """Be busy for this number of seconds from `start`, a time that `earliest` gave for them."""
        if seconds == 0:
            return
        gap = bisect_left(self._ends, start + seconds)
        rest = [(self._starts[gap], start), (start + seconds, self._ends[gap])]
        kept = [(begin, end) for begin, end in rest if begin < end]
        self._starts[gap : gap + 1] = [begin for begin, _ in kept]
        self._ends[gap : gap + 1] = [end for _, end in kept]
