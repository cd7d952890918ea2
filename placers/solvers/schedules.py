"""Schedules: all placements of a problem with all orders of their ops and transfers, as a model for CP-SAT.

Every run of the simulator is one of these schedules, whichever the priority, so no placement that fits is faster than
the fastest schedule. The reverse does not hold: a schedule may leave a device idle although an op is ready.
"""

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from graphs.algorithms.pairs import distinct_pairs
from graphs.cluster import FREE
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem

TICKS = 2**26  # of time in a step, at most


@dataclass(frozen=True, eq=False)
class ScheduleProposal:
    """The fastest schedule that was found, if any, and what no schedule can beat."""

    placement: Ints | None  # (units,) device
    start: Floats | None  # (ops,) seconds
    bound_seconds: float  # infinite if there is no schedule within the horizon
    work: float  # deterministic seconds that the search took


class Schedules:
    """The model; its optimum, `step`, is in ticks.

    Durations are rounded down to ticks: any schedule then remains one, with all its times rounded down, so that the
    fastest schedule in ticks is no slower than the fastest.
    """

    def __init__(self, problem: Problem, op_seconds: Floats, horizon_seconds: float) -> None:
        """`op_seconds` is (ops, devices); steps longer than the horizon are left out."""
        graph, cluster = problem.graph, problem.cluster
        self.problem = problem
        self.tick_seconds = 2.0 ** math.ceil(math.log2(max(horizon_seconds, 1e-200) / TICKS))  # halves stay exact
        self._horizon = math.ceil(horizon_seconds / self.tick_seconds)
        self._devices = range(len(cluster))
        self._takes_time = op_seconds > 0
        self._ticks = self._floor(op_seconds)
        self._held_ticks = self._floor(op_seconds + np.where(self._takes_time, problem.hold_seconds, 0.0))
        self.model = cp_model.CpModel()
        self.step = self.model.new_int_var(0, self._horizon, "step")
        self.on = [[self.model.new_bool_var("") for _ in self._devices] for _ in range(graph.num_units)]
        self._op_on = [self.on[unit] for unit in graph.units]
        self._start = [self.model.new_int_var(0, self._horizon, "") for _ in graph.names]
        self._end = [
            start + cp_model.LinearExpr.weighted_sum(on, ticks)
            for start, on, ticks in zip(self._start, self._op_on, self._ticks.tolist(), strict=True)
        ]
        self._add_devices()
        self._add_edges()
        self._add_memory()
        self.model.minimize(self.step)

    def propose(self, work: float) -> ScheduleProposal:
        """Search with `work` deterministic seconds, the same on every machine."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_deterministic_time = work
        status = solver.status_name(solver.solve(self.model))
        spent = float(solver.response_proto.deterministic_time)
        if status == "INFEASIBLE":
            return ScheduleProposal(None, None, math.inf, spent)
        # ticks are whole, and rounded down
        bound = math.ceil(solver.best_objective_bound - 1e-6) * self.tick_seconds
        if status not in ("OPTIMAL", "FEASIBLE"):
            return ScheduleProposal(None, None, bound, spent)
        placement = [[solver.value(on) for on in unit].index(1) for unit in self.on]
        start = self.tick_seconds * np.array([solver.value(start) for start in self._start], np.float64)
        return ScheduleProposal(np.array(placement, np.int64), start, bound, spent)

    def fix(self, placement: Ints) -> None:
        """Search the schedules of one placement, (units,) devices."""
        for on, device in zip(self.on, placement.tolist(), strict=True):
            self.model.add(on[device] == 1)

    def forbid(self, placement: Ints) -> None:
        """Leave a placement, (units,) devices, out of further proposals."""
        chosen = (on[device] for on, device in zip(self.on, placement.tolist(), strict=True))
        self.model.add_bool_or([on.negated() for on in chosen])

    def start_from(self, placement: Ints) -> None:
        """Give the solver a hint: a placement, (units,) devices, that is already good."""
        for on, device in zip(self.on, placement.tolist(), strict=True):
            for there in self._devices:
                self.model.add_hint(on[there], there == device)

    def _floor(self, seconds: Floats) -> Ints:
        """Ticks; one more than the horizon for what takes longer."""
        ticks: Ints = np.floor(np.minimum(seconds / self.tick_seconds, self._horizon + 1)).astype(np.int64)
        return ticks

    def _add_devices(self) -> None:
        """Rule 1: a device runs one op at a time, and is held for a launch after it; what takes no time needs none."""
        model, units = self.model, self.problem.graph.units
        for on in self.on:
            model.add_exactly_one(on)
        if self.problem.allowed is not None:
            for unit, device in np.argwhere(~self.problem.allowed).tolist():
                model.add(self.on[unit][device] == 0)
        for end in self._end:
            model.add(end <= self.step)
        for device in self._devices:
            ticks = self._held_ticks[:, device]
            of_op = zip(self._start, ticks.tolist(), self._op_on, self._takes_time[:, device], strict=True)
            model.add_no_overlap(
                [
                    model.new_optional_fixed_size_interval_var(start, size, on[device], "")
                    for start, size, on, takes_time in of_op
                    if takes_time
                ]
            )
            load = np.zeros(len(self.on), np.int64)
            np.add.at(load, units, ticks)
            work = cp_model.LinearExpr.weighted_sum([on[device] for on in self.on], load.tolist())
            # this follows from the rest, and speeds the search up a lot
            model.add(work <= self.step + int((ticks - self._ticks[:, device]).max()))

    def _add_edges(self) -> None:
        """Rules 2 and 3: an op waits for its inputs, and an output is sent once to each other device."""
        graph, cluster = self.problem.graph, self.problem.cluster
        readers: dict[tuple[int, int], list[int]] = defaultdict(list)  # of an op's output, or of a message
        columns = (graph.edges, graph.edge_output, graph.control)
        for (u, v), output, is_control in zip(*(column.tolist() for column in columns), strict=True):
            self.model.add(self._start[v] >= self._end[u])
            if not is_control and graph.units[u] != graph.units[v]:
                readers[u, output].append(v)
        queues: dict[int, list[cp_model.IntervalVar]] = defaultdict(list)
        for source in self._devices:
            served_together: dict[tuple[int, int], list[int]] = defaultdict(list)
            for there in self._devices:
                channel = int(cluster.channel[source, there])
                if there != source:
                    is_multicast = channel != FREE and cluster.multicast[channel]
                    served_together[channel, -1 if is_multicast else there].append(there)
            for (channel, _), destinations in served_together.items():
                queues[channel] += [
                    self._transfer(sent, source, destinations, channel, readers[sent]) for sent in readers
                ]
        for channel, transfers in queues.items():
            if channel != FREE:
                self.model.add_no_overlap(transfers)

    def _transfer(
        self, sent: tuple[int, int], source: int, destinations: list[int], channel: int, consumers: list[int]
    ) -> cp_model.IntervalVar:
        """One transfer of what is sent, given by its producer and number, if a consumer is on one of the destinations.

        A multicast one takes as long as its slowest destination; here, each destination counts its own seconds.
        """
        cluster, model, (op, output) = self.problem.cluster, self.model, sent
        seconds = cluster.latency[source] + self.problem.graph.moved_bytes[output] / cluster.bandwidth[source]
        gap = 0.0 if channel == FREE else float(cluster.gap[channel])
        held = int(self._floor(seconds[destinations] + gap).min())
        start, present = model.new_int_var(0, self._horizon, ""), model.new_bool_var("")
        model.add(start >= self._end[op]).only_enforce_if(present)
        for there in destinations:
            ticks = int(self._floor(seconds)[there])
            for consumer in dict.fromkeys(consumers):
                needed = [self._op_on[op][source], self._op_on[consumer][there]]
                model.add_bool_and(present).only_enforce_if(needed)
                model.add(self._start[consumer] >= start + ticks).only_enforce_if(needed)
        return model.new_optional_fixed_size_interval_var(start, held, present, "")

    def _add_memory(self) -> None:
        """Rule 6, in part: while an op runs, its device holds its parameters, the op's inputs and its output."""
        weights = np.floor(self.problem.weight_memory.bytes).astype(np.int64).tolist()
        needed = self._working_bytes()
        uses = self.problem.units.weight_uses
        users = [uses[uses[:, 1] == weight, 0] for weight in range(len(weights))]
        for device, memory in enumerate(self.problem.cluster.memory_bytes):
            if memory >= sum(weights) + needed.max():
                continue
            held = []
            for using in users:
                on = [self.on[unit][device] for unit in using]
                held.append(on[0] if len(on) == 1 else self.model.new_bool_var(""))
                for one in on:
                    self.model.add_implication(one, held[-1])
            static = cp_model.LinearExpr.weighted_sum(held, weights)
            self.model.add(static <= math.floor(memory))
            for op in np.flatnonzero(needed * self._takes_time[:, device]):
                left = math.floor(memory) - int(needed[op])
                self.model.add(static <= left).only_enforce_if(self._op_on[op][device])

    def _working_bytes(self) -> Ints:
        """(ops,) bytes of each op's output and distinct inputs: each its least, an output or a message in its place."""
        graph = self.problem.graph
        needed = np.floor(graph.output_bytes).astype(np.int64)
        carried = np.floor(graph.occupied_bytes).astype(np.int64)[graph.edge_output]
        pair, which = distinct_pairs(graph.edges[~graph.control])
        least = needed[pair[:, 0]]
        np.minimum.at(least, which, carried[~graph.control])
        np.add.at(needed, pair[:, 1], least)
        return needed
