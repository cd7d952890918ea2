"""m-ETF's and m-SCT's schedules by a plain loop, which compares all pairs of a ready op and a device in every round."""

from collections.abc import Mapping

import numpy as np

from envs.simulation.held_memory import Room
from graphs.op_graph import Floats, Ints
from placers.solvers.list_scheduling import SchedulingTasks, by_urgency, devices_with_room, link_costs

Favourites = Mapping[int, tuple[int, float]]  # by op: its favourite child, and the seconds that a device waits for it


class PlainEarliestTask:
    """What is planned so far."""

    def __init__(self, tasks: SchedulingTasks, room: Room, favourites: Favourites) -> None:
        graph, devices = tasks.graph, len(tasks.cluster)
        self.tasks, self.graph, self.room, self.favourites = tasks, graph, room, favourites
        self.urgency = by_urgency(graph, tasks.static_levels()).tolist()
        self.placement = np.full(graph.num_units, -1)
        self.start, self.finish = np.zeros(len(graph)), np.zeros(len(graph))
        self.free = [0.0] * devices
        self.waits: list[tuple[int, float] | None] = [None] * devices  # for which op, and until when
        self.allowed = {op: list(range(devices)) for op in range(len(graph))}
        self.done: set[int] = set()

    def run(self) -> tuple[Ints, Floats, Floats]:
        """Placement, (units,), and seconds of start and finish, (ops,) each."""
        while len(self.done) < len(self.graph):
            pairs = [
                (self.starts_at(op, device), rank, device, op)
                for rank, op in enumerate(self.urgency)
                if op not in self.done and self.producers(op) <= self.done
                for device in self.allowed[op]
            ]
            start, _, device, op = min(pairs)
            unit = self.graph.units[op]
            if self.placement[unit] < 0:
                allowed = devices_with_room(self.room.after(unit))
                if device not in allowed:
                    self.allowed[op] = allowed
                    continue
                self.placement[unit] = device
                self.room.take(unit, device)
                self.allowed |= {tied: [device] for tied in np.flatnonzero(self.graph.units == unit).tolist()}
            self.plan(op, device, start)
        return self.placement, self.start, self.finish

    def producers(self, op: int) -> set[int]:
        return set(self.graph.edges[self.graph.edges[:, 1] == op, 0].tolist())

    def arrivals(self, op: int) -> Floats:
        """(devices,) when its last input is on each."""
        latency, per_byte = link_costs(self.tasks.cluster)
        found = np.zeros(len(self.free))
        for edge in np.flatnonzero(self.graph.edges[:, 1] == op).tolist():
            producer = self.graph.edges[edge, 0]
            source = self.placement[self.graph.units[producer]]
            transfer = ~self.graph.control[edge] * latency[source] + self.tasks.payload[edge] * per_byte[source]
            found = np.maximum(found, self.finish[producer] + transfer)
        return found

    def starts_at(self, op: int, device: int) -> float:
        arrivals, waits = self.arrivals(op), self.waits[device]
        if self.tasks.seconds[op, device] == 0:
            return float(arrivals[device])
        start = max(arrivals[device], self.free[device])
        if waits is not None and waits[0] != op:
            start = max(start, min(arrivals.max(), waits[1]))
        return float(start)

    def plan(self, op: int, device: int, start: float) -> None:
        """Run the op, and let its device wait for its favourite child, and others no longer if that is elsewhere."""
        seconds, waits = self.tasks.seconds[op, device], self.waits[device]
        self.start[op], self.finish[op] = start, start + seconds
        self.done.add(op)
        if seconds > 0:
            self.free[device] = start + seconds
        if self.finish[op] > start or (waits is not None and waits[0] == op):
            self.waits[device] = None
            child, patience = self.favourites.get(op, (op, 0.0))
            unit = self.graph.units[child]
            if child != op and (
                self.room.after(unit)[device] >= 0 if self.placement[unit] < 0 else self.placement[unit] == device
            ):
                self.waits[device] = child, self.finish[op] + patience
        for other, waiting in enumerate(self.waits):
            if waiting is not None and self.placement[self.graph.units[waiting[0]]] not in (-1, other):
                self.waits[other] = None
                self.free[other] = max(self.free[other], start)
