"""m-ETF (Jeon et al. 2020, "Baechi"): of all ready ops and devices with room, the pair that starts first.

Earliest task first (Hwang et al. 1989) with memory. All ops that wait for one busy device could start at the same
time, so that how ties are broken decides most of the order: the op of the highest static level goes first, as "Static
scheduling algorithms" (Kwok and Ahmad 1999) describes ETF; equal ones go in topological order. Baechi's paper does not
say. Tied ops follow the first of them that is placed, launches count, and ops that take no time need no device, as in
HEFT.
"""

from bisect import insort
from dataclasses import dataclass

import numpy as np

from envs.simulation.held_memory import Room
from graphs.op_graph import Bools, Floats, Ints, OpGraph
from placers.solvers.list_scheduling import ListSchedule, ListScheduler, SchedulingTasks, by_urgency, devices_with_room


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
        self._awaited = np.full(devices, -1, np.int64)  # (devices,) op, or -1
        self._until = np.zeros(devices)  # (devices,) seconds

    def delayed(self, starts: Floats, ops: list[int], everywhere: Floats) -> Floats:
        """(ops, devices) starts; where a device waits for another op, not before that ends or the op is urgent.

        An op is urgent from `everywhere`, (ops,), when its inputs are on all devices.
        """
        waits = (self._awaited >= 0) & (self._awaited != np.array(ops)[:, None])
        put_off = np.minimum(everywhere[:, None], self._until)
        return np.where(waits, np.maximum(starts, put_off), starts)

    def renew(self, planned: ListSchedule, op: int, device: int, room: Room) -> Bools:
        """(devices,) which stop waiting as `op` has been planned on `device`: their child is placed elsewhere.

        An op that takes no time does not end the wait for another op.
        """
        placement, child = planned.placement, self._child[op]
        if planned.finish[op] > planned.start[op] or self._awaited[device] == op:
            unit = self._units[child]  # of any op if there is no child
            may_come = placement[unit] == device if placement[unit] >= 0 else room.after(unit)[device] >= 0
            self._awaited[device] = child if child >= 0 and may_come else -1
            self._until[device] = planned.finish[op] + self._patience[op]
        where = placement[self._units[self._awaited]]
        elsewhere: Bools = (self._awaited >= 0) & (where >= 0) & (where != np.arange(len(where)))
        self._awaited[elsewhere] = -1
        return elsewhere


def earliest_task_first(tasks: SchedulingTasks, room: Room, waits: WaitingDevices | None = None) -> ListSchedule:
    """Place every unit of a graph; `room` is the memory to fill."""
    graph, devices, planned = tasks.graph, len(tasks.cluster), ListSchedule(tasks)
    out_offsets, by_producer = graph.successors  # compressed rows of the edges out of each op
    rank = np.argsort(by_urgency(graph, tasks.static_levels())).tolist()  # (ops,) position
    free = np.zeros(devices)  # (devices,) seconds at which each has run all ops that it was given
    takes_time = tasks.seconds > 0  # (ops, devices)
    arrivals = np.zeros((len(graph), devices))  # (ops, devices) when the inputs of a ready op are on each
    waiting = np.bincount(graph.edges[:, 1], minlength=len(graph))
    ready = sorted(np.flatnonzero(waiting == 0).tolist(), key=rank.__getitem__)
    barred = np.zeros((len(graph), devices))  # (ops, devices) infinite where an op may not go
    # the ops of each unit: once one of them is placed, the others are barred everywhere else
    members = np.split(np.argsort(graph.units, kind="stable"), np.cumsum(np.bincount(graph.units))[:-1])
    # one pair of a ready op and a device per round: a row of `starts` per ready op, the most urgent first, so that the
    # first of the least entries is also the most urgent op
    while ready:
        starts = np.maximum(arrivals[ready], free)
        if waits is not None:
            starts = waits.delayed(starts, ready, arrivals[ready].max(axis=1))
        starts = np.where(takes_time[ready], starts, arrivals[ready])
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
        planned.finish[op] = starts[row, device] + tasks.seconds[op, device]
        if takes_time[op, device]:
            free[device] = planned.finish[op]
        if waits is not None:
            given_up = waits.renew(planned, op, device, room)
            free[given_up] = np.maximum(free[given_up], starts[row, device])  # time that has passed is lost
        for consumer in graph.edges[by_producer[out_offsets[op] : out_offsets[op + 1]], 1].tolist():
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                arrivals[consumer] = planned.arrivals(consumer)
                insort(ready, consumer, key=rank.__getitem__)
    return planned
