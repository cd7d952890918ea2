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

import numpy as np

from envs.held_memory import Room
from envs.placer_result import PlacerResult
from graphs.cluster import Cluster
from graphs.foundation.by_name import Named
from graphs.op_graph import Floats, Ints, OpGraph
from graphs.problem import Problem
from placers.solvers.list_scheduling import Schedule, devices_with_room, link_costs, place_within_memory, upward_ranks


@dataclass(frozen=True)
class Heft(Named):
    """Each op to the device that finishes it first, most urgent op first."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The first schedule, unsimulated, with a budget of one.

        The memory held by a schedule is estimated. With a larger budget, schedules that turn out not to fit are made
        again with less of each device's memory to fill, as often as the budget allows.
        """
        return place_within_memory(problem, self.name, seed, budget, schedule)


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
        # ready (devices,): when the last input has come from where its producer is. A row per input, a column per
        # device, 0 for a transfer within a device: max over rows of finish (inputs, 1) + transfer (inputs, devices)
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


class IdleTime:
    """When one device is idle: disjoint gaps in order of time, the last of which never ends."""

    def __init__(self) -> None:
        self._starts = [0.0]
        self._ends = [np.inf]

    def earliest(self, ready: float, seconds: float) -> float:
        """The earliest start, from `ready` on, of something that takes this number of seconds without a break."""
        gap = bisect_left(self._ends, ready)
        while (start := max(self._starts[gap], ready)) + seconds > self._ends[gap]:
            gap += 1
        return start

    def take(self, start: float, seconds: float) -> None:
        """Be busy from `start` on, a time that `earliest` gave for this number of seconds."""
        if seconds == 0:
            return
        gap = bisect_left(self._ends, start + seconds)
        rest = [(self._starts[gap], start), (start + seconds, self._ends[gap])]
        kept = [(begin, end) for begin, end in rest if begin < end]
        self._starts[gap : gap + 1] = [begin for begin, _ in kept]
        self._ends[gap : gap + 1] = [end for _, end in kept]
