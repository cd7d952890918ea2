"""What the order head sees: how urgent each part of a unit is, before and after the units are placed.

The rule `longest_path` knows neither transfers nor devices. Once a placement is given, all that a list scheduler would
ask can be said of every op, in a few sweeps over the edges and without a simulation:

    start        seconds from the beginning, along the longest path to the op, with the transfers of the placement
    path         seconds to the end, likewise; start + path of all ops on the critical path is the path's length
    queue        seconds of all ops on its device that are not more urgent by the rule
    awaited      the longest queue that an output of it, sent to another device, joins there
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.costs.costs import Costs
from envs.orders import priorities_of
from envs.simulation.bounds import bound_of_devices
from envs.simulation.compiled import compiled
from graphs.op_graph import Bools, Floats, Ints
from graphs.op_graph.parts import AWAITED, FORWARD, UNAWAITED, UPDATE, Parts
from graphs.problem import STEP_TIME, Problem
from graphs.runtime import LONGEST_PATH
from placers.learned.features import Column, joined
from placers.solvers.list_scheduling import link_costs

ORDER_FEATURES = (
    "urgency", "seconds", "forward", "awaited_gradient", "unawaited_gradient", "update",
    "path_over_rank", "slack", "start", "sending", "queue_over_path", "queue_there_over_path", "sends",
    "load_of_most", "load_of_length", "traffic_of_length",
)  # fmt: skip
LONGEST = 5.0  # features that are logarithms of ratios lie between this and minus this
KIND_FEATURES = {"forward": FORWARD, "awaited_gradient": AWAITED, "unawaited_gradient": UNAWAITED, "update": UPDATE}


class Paths(NamedTuple):
    """A problem as the sweeps read it; edges are by the topological position of their producers."""

    producer: Ints  # (edges,) op
    consumer: Ints  # (edges,) op
    carries: Bools  # (edges,) whether anything is sent, or only awaited
    edge_bytes: Floats  # (edges,)
    unit: Ints  # (ops,)
    least_urgent_first: Ints  # (ops,) by the rule
    seconds: Floats  # (ops, devices) with launches
    latency: Floats  # (devices, devices) seconds, 0 within a device
    per_byte: Floats  # (devices, devices) seconds per byte, 0 within a device


class Sweeps(NamedTuple):
    """What the sweeps find for several placements; all in seconds."""

    taken: Floats  # (placements, ops) by the op itself, on its device
    start: Floats  # (placements, ops)
    behind: Floats  # (placements, ops) the path without the op itself
    queue: Floats  # (placements, ops)
    awaited: Floats  # (placements, ops) 0 if nothing is sent
    sending: Floats  # (placements, ops) of its transfers to other devices
    load: Floats  # (placements, devices)
    traffic: Floats  # (placements, devices) of the transfers out of each device


@dataclass(frozen=True, eq=False)
class Precedence:
    """The parts of a problem's units, how urgent the rule finds them, and what tells how urgent they are."""

    parts: Parts
    rule: Floats  # (ops,) priorities by the rule: minus the seconds of the longest path, without transfers
    paths: Paths
    scale: float  # seconds: the lower bound of the step

    @classmethod
    def of(cls, problem: Problem, costs: Costs) -> Precedence | None:
        """That of a problem; None under another rule than longest path first, or another objective than step times.

        There the order has no such rule to depart from, or does not count.
        """
        if problem.runtime.order != LONGEST_PATH or problem.objective != STEP_TIME:
            return None
        graph, (latency, per_byte) = problem.graph, link_costs(problem.cluster)
        rule = priorities_of(problem, op_seconds=costs.op_seconds)
        edges = np.argsort(graph.topological_position[graph.edges[:, 0]], kind="stable")
        producer, consumer = (np.ascontiguousarray(end) for end in graph.edges[edges].T)
        paths = Paths(
            producer, consumer, ~graph.control[edges], graph.carried_bytes[edges].astype(np.float64),
            np.array(graph.units), np.argsort(-rule, kind="stable"),
            np.ascontiguousarray(costs.busy_seconds(problem)), latency, per_byte,
        )  # fmt: skip
        scale = max(bound_of_devices(problem, costs.op_seconds), 1e-12)
        return cls(Parts.of(graph), rule, paths, scale)

    def features(self, placements: Ints) -> NDArray[np.float32]:
        """(placements, parts, features) of (placements, units) devices."""
        swept, unit = self._sweeps(placements), self.parts.unit
        rank, path = self._longest(-self.rule[None]), self._longest(swept.taken + swept.behind)
        critical = self._longest(swept.start + swept.taken + swept.behind)
        length = np.maximum(critical.max(axis=1, initial=0.0, keepdims=True), self.scale)
        begin = self.parts.offsets[:-1]
        start = np.minimum.reduceat(swept.start[:, self.parts.ops], begin, axis=1)
        sending = np.add.reduceat(swept.sending[:, self.parts.ops], begin, axis=1)
        seconds = np.add.reduceat(swept.taken[:, self.parts.ops], begin, axis=1)
        there = self._longest(swept.awaited)
        load, traffic = (np.take_along_axis(each, placements[:, unit], 1) for each in (swept.load, swept.traffic))
        columns: dict[str, Column] = {
            "urgency": np.log1p(10 * rank / self.scale),
            "seconds": np.log1p(10 * seconds / self.scale),
            **{name: self.parts.kind[None] == kind for name, kind in KIND_FEATURES.items()},
            "path_over_rank": self._ratio(path, rank),
            "slack": 1 - critical / length,
            "start": start / length,
            "sending": np.log1p(10 * sending / self.scale),
            "queue_over_path": self._ratio(self._longest(swept.queue), path),
            "queue_there_over_path": np.where(sending > 0, self._ratio(there, path), 0.0),
            "sends": sending > 0,
            "load_of_most": load / np.maximum(swept.load.max(axis=1, keepdims=True), 1e-30),
            "load_of_length": self._ratio(load, length),
            "traffic_of_length": np.log1p(traffic / length),
        }
        return joined(ORDER_FEATURES, columns)

    def priorities(self, corrections: Floats) -> Floats:
        """(plans, ops) of (plans, parts) corrections: the rule's, times e to the power of the part's correction."""
        return self.rule * np.exp(corrections[:, self.parts.of_op])

    def _sweeps(self, placements: Ints) -> Sweeps:
        ops, devices = self.paths.seconds.shape
        swept = Sweeps(*(np.zeros((len(placements), ops)) for _ in range(6)),
                       *(np.zeros((len(placements), devices)) for _ in range(2)))  # fmt: skip
        _sweep(self.paths, np.ascontiguousarray(placements, np.int64), swept)
        return swept

    def _longest(self, of_ops: Floats) -> Floats:
        """(placements, parts) the largest of each part's ops, (placements, ops)."""
        longest: Floats = np.maximum.reduceat(of_ops[:, self.parts.ops], self.parts.offsets[:-1], axis=1)
        return longest

    def _ratio(self, one: Floats, other: Floats) -> Floats:
        """The logarithm of a ratio of seconds, within bounds; 0 if both are next to nothing."""
        least = 1e-6 * self.scale
        return np.clip(np.log((one + least) / (other + least)), -LONGEST, LONGEST)


@compiled
def _sweep(paths: Paths, placements: Ints, swept: Sweeps) -> None:
    """Write what is known of all ops under each placement, (placements, units), to what is all 0."""
    for i in range(len(placements)):
        placement, taken = placements[i], swept.taken[i]
        start, behind, queue = swept.start[i], swept.behind[i], swept.queue[i]
        for op in paths.least_urgent_first:
            device = placement[paths.unit[op]]
            taken[op] = paths.seconds[op, device]
            swept.load[i, device] += taken[op]
            queue[op] = swept.load[i, device]
        for edge in range(len(paths.producer)):
            producer, consumer = paths.producer[edge], paths.consumer[edge]
            source, target = placement[paths.unit[producer]], placement[paths.unit[consumer]]
            transfer = 0.0
            if source != target and paths.carries[edge]:
                transfer = paths.latency[source, target] + paths.edge_bytes[edge] * paths.per_byte[source, target]
                swept.sending[i, producer] += transfer
                swept.traffic[i, source] += transfer
                swept.awaited[i, producer] = max(swept.awaited[i, producer], queue[consumer])
            start[consumer] = max(start[consumer], start[producer] + taken[producer] + transfer)
        for backwards in range(len(paths.producer)):
            edge = len(paths.producer) - 1 - backwards
            producer, consumer = paths.producer[edge], paths.consumer[edge]
            source, target = placement[paths.unit[producer]], placement[paths.unit[consumer]]
            transfer = 0.0
            if source != target and paths.carries[edge]:
                transfer = paths.latency[source, target] + paths.edge_bytes[edge] * paths.per_byte[source, target]
            behind[producer] = max(behind[producer], transfer + taken[consumer] + behind[consumer])
