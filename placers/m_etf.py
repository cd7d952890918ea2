"""m-ETF (Jeon et al. 2020, "Baechi"): of all ready ops and devices with room, the pair that starts first.

Earliest task first (Hwang et al. 1989) with memory. All ops that wait for one busy device could start at the same
time, so that how ties are broken decides most of the order: the op of the highest static level goes first, as "Static
scheduling algorithms" (Kwok and Ahmad 1999) describes ETF; equal ones go in topological order. Baechi's paper does not
say. Tied ops follow the first of them that is placed, launches count, and ops that take no time need no device, as in
HEFT.
"""

from dataclasses import dataclass

import numpy as np

from envs.simulation.held_memory import Room
from graphs.op_graph import Bools, Floats, Ints, OpGraph
from placers.solvers.list_scheduling import ListSchedule, ListScheduler, SchedulingTasks, by_urgency, devices_with_room
from placers.solvers.ready_ops import ReadyOps


@dataclass(frozen=True)
class EarliestTaskFirst(ListScheduler):
    """Whatever can start first, where it can."""

    def schedule(self, tasks: SchedulingTasks, room: Room) -> ListSchedule:
        """No device waits while an op can run."""
        return earliest_task_first(tasks, room)


build = EarliestTaskFirst


class WaitingDevices:
    """Devices that wait for the favourite child of the op that they ran last, as m-SCT has them."""

    def __init__(self, graph: OpGraph, favourites: Ints, transfer: Floats, devices: int) -> None:
        """`favourites` (favourites,) are indices of edges, and `transfer` (edges,) the seconds that a device waits."""
        self._units = graph.units
        self._child = np.full(len(graph), -1, np.int64)  # (ops,) favourite, or -1
        self._patience = np.zeros(len(graph))  # (ops,) seconds
        self._child[graph.edges[favourites, 0]] = graph.edges[favourites, 1]
        self._patience[graph.edges[favourites, 0]] = transfer[favourites]
        self.awaited = np.full(devices, -1, np.int64)  # (devices,) op, or -1
        self.until = np.zeros(devices)  # (devices,) seconds

    def renew(self, planned: ListSchedule, op: int, device: int, room: Room) -> Bools:
        """(devices,) which stop waiting as `op` has been planned on `device`: their child is placed elsewhere.

        An op that takes no time does not end the wait for another op.
        """
        placement, child = planned.placement, self._child[op]
        if planned.finish[op] > planned.start[op] or self.awaited[device] == op:
            unit = self._units[child]  # of any op if there is no child
            is_open = placement[unit] < 0
            may_come = child >= 0 and (room.after(unit)[device] >= 0 if is_open else placement[unit] == device)
            self.awaited[device] = child if may_come else -1
            self.until[device] = planned.finish[op] + self._patience[op]
        where = placement[self._units[self.awaited]]
        elsewhere: Bools = (self.awaited >= 0) & (where >= 0) & (where != np.arange(len(where)))
        self.awaited[elsewhere] = -1
        return elsewhere


def earliest_task_first(tasks: SchedulingTasks, room: Room, waits: WaitingDevices | None = None) -> ListSchedule:
    """Place every unit of a graph; `room` is the memory to fill."""
    graph, planned, devices = tasks.graph, ListSchedule(tasks), np.arange(len(tasks.cluster))
    out_offsets, by_producer = graph.successors  # compressed rows of the edges out of each op
    takes_time = tasks.seconds > 0  # (ops, devices)
    ready = ReadyOps(by_urgency(graph, tasks.static_levels()), takes_time)
    free = np.zeros(len(devices))  # (devices,) seconds at which each has run all ops that it was given
    awaited, until = (np.full(len(devices), -1), free) if waits is None else (waits.awaited, waits.until)
    waiting = np.bincount(graph.edges[:, 1], minlength=len(graph))  # (ops,) unplanned producers; -1: planned
    # the ops of each unit: once one of them is placed, the others go nowhere else
    members = np.split(np.argsort(graph.units, kind="stable"), np.cumsum(np.bincount(graph.units))[:-1])
    for op in np.flatnonzero(waiting == 0).tolist():
        ready.offer(op, planned.arrivals(op), devices)
    while (pair := ready.take(free, awaited, until)) is not None:
        op, device, start = pair
        unit = graph.units[op]
        if planned.placement[unit] < 0:
            allowed = devices_with_room(room.after(unit))
            if device not in allowed:  # no room there: ask again without it
                ready.offer(op, planned.arrivals(op), devices[allowed])
                continue
            planned.placement[unit] = device
            room.take(unit, device)
            others = members[unit][(waiting[members[unit]] == 0) & (members[unit] != op)]
            for other in others.tolist():
                ready.offer(other, planned.arrivals(other), devices[device : device + 1])
        waiting[op] = -1
        planned.start[op] = start
        planned.finish[op] = start + tasks.seconds[op, device]
        if takes_time[op, device]:
            free[device] = planned.finish[op]
        if waits is not None:
            given_up = waits.renew(planned, op, device, room)
            free[given_up] = np.maximum(free[given_up], start)  # time that has passed is lost
        for consumer in graph.edges[by_producer[out_offsets[op] : out_offsets[op + 1]], 1].tolist():
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                at = planned.placement[graph.units[consumer]]
                ready.offer(consumer, planned.arrivals(consumer), devices if at < 0 else devices[at : at + 1])
    return planned
