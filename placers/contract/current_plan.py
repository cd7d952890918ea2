"""A plan that is to be improved, as a policy sees it: what its step showed of every unit.

Repairs begin where a plan is slow. Slack is by how much an op could end later without the step ending later, if every
device kept its order of ops; the less of it, the more critical. Idle is what a device waited right before an op:

    device 0   [ a ][ b ]        idle        [ d ]      slack of b: until d starts, less the transfer of c
    device 1         [      c (reads a)     ]           c has none: d reads it
"""

from dataclasses import dataclass
from enum import IntEnum, auto
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from envs.simulation.compiled import compiled
from envs.simulation.simulator import Outcome, Simulator
from graphs.algorithms.order import compressed_rows
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.solvers.list_scheduling import link_costs


class PlanFeature(IntEnum):
    """The column of each feature of a unit in a plan; all are shares, but for `FULL`."""

    CRITICAL = 0  # one minus the least slack of its ops, as a share of the step
    WAITED = auto()  # for which its device was idle right before its ops, of the step
    BEGINS = auto()  # when its first op starts, of the step
    WORK = auto()  # its own time, of the step
    LOAD = auto()  # the work of its device, of the step
    CUT = auto()  # bytes of its links to other devices, of all its links
    SENDING = auto()  # seconds of these transfers, of the step; at most 1
    FULL = auto()  # what its device holds at the peak, over its memory; at most 2


@dataclass(eq=False)
class CurrentPlan:
    """A plan of a problem that is to be improved, and how its step went."""

    placement: Ints  # (units,) device
    step_seconds: float
    fits: bool
    features: NDArray[np.float32]  # (units, len(PlanFeature))
    near_in_time: Ints  # (units, 4) units before and after it: on its device, and on any; -1 where there is none


class PlanReader:
    """Looks at plans of one problem, one after another."""

    def __init__(self, problem: Problem, simulator: Simulator | None = None) -> None:
        self.problem = problem
        self.simulator = simulator or Simulator(problem)
        self._unit_seconds = problem.units.summed(self.simulator.costs.op_seconds)  # (units, devices)
        self._latency, self._per_byte = link_costs(problem.cluster)
        self._memory = np.maximum(problem.cluster.memory_bytes, 1.0)
        self._edges = problem.graph.edges.astype(np.int64)  # a copy, as compiled code wants what can be written
        self._carried = np.array(problem.graph.carried_bytes, np.float64)

    @cached_property
    def _consumers(self) -> tuple[Ints, Ints]:
        """(ops + 1,) where the out-edges of each op begin, (edges,) these."""
        edges = self.problem.graph.edges
        return compressed_rows(edges[:, 0], edges[:, 1], len(self.problem.graph))

    def read(self, placement: Ints, priorities: Floats | None = None) -> CurrentPlan:
        """How the step of a placement, (units,), goes, under priorities, (ops,), or else the problem's rule."""
        start, finish, outcome = self.simulator.op_times(placement, priorities)
        graph = self.problem.graph
        device = np.ascontiguousarray(placement[graph.units], np.int64)
        by_start = np.lexsort(
            (graph.topological_position, start)
        )  # ops that take no time start with those that read them
        slack, idle = np.empty(len(graph)), np.empty(len(graph))
        offsets, out_edges = self._consumers
        edges = self._edges
        last = np.empty(len(self.problem.cluster))
        write_slack(
            by_start, start, finish, device, offsets, out_edges, edges, self._transfer_seconds(edges, device),
            last, slack, idle, outcome.step_seconds,
        )  # fmt: skip
        begins = np.full(len(placement), np.inf)
        np.minimum.at(begins, graph.units, start)
        features = self._features(placement, outcome, begins, slack, idle)
        return CurrentPlan(
            placement.copy(), outcome.step_seconds, outcome.fits, features, _near_in_time(placement, begins)
        )

    def _transfer_seconds(self, edges: Ints, device: Ints) -> Floats:
        """(edges,) seconds of the transfer of each, alone; 0 within a device."""
        source, target = device[edges[:, 0]], device[edges[:, 1]]
        apart = (source != target) & ~self.problem.graph.control
        seconds: Floats = apart * (self._latency[source, target] + self._carried * self._per_byte[source, target])
        return seconds

    def _features(
        self, placement: Ints, outcome: Outcome, begins: Floats, slack: Floats, idle: Floats
    ) -> NDArray[np.float32]:
        units, everyone = self.problem.units, np.arange(len(placement))
        step = max(outcome.step_seconds, 1e-12)
        work = self._unit_seconds[everyone, placement]
        load = np.bincount(placement, work, len(self.problem.cluster))
        critical = np.full(len(placement), np.inf)
        np.minimum.at(critical, self.problem.graph.units, slack)
        one, other = units.links.T
        apart = placement[one] != placement[other]
        cut = np.bincount(units.links.ravel(), np.repeat(units.link_bytes * apart, 2), len(placement))
        linked = np.bincount(units.links.ravel(), np.repeat(units.link_bytes, 2), len(placement))
        sent = units.link_bytes * self._per_byte[placement[one], placement[other]]
        sending = np.bincount(units.links.ravel(), np.repeat(sent, 2), len(placement))
        columns = {
            PlanFeature.CRITICAL: 1.0 - np.clip(critical / step, 0.0, 1.0),
            PlanFeature.WAITED: np.clip(np.bincount(self.problem.graph.units, idle, len(placement)) / step, 0.0, 1.0),
            PlanFeature.BEGINS: begins / step,
            PlanFeature.WORK: work / step,
            PlanFeature.LOAD: load[placement] / step,
            PlanFeature.CUT: cut / np.maximum(linked, 1e-30),
            PlanFeature.SENDING: np.minimum(sending / step, 1.0),
            PlanFeature.FULL: np.minimum(outcome.peak_bytes / self._memory, 2.0)[placement],
        }
        return np.stack([columns[feature] for feature in PlanFeature], axis=1).astype(np.float32)


@compiled
def write_slack(
    by_start: Ints, start: Floats, finish: Floats, device: Ints, offsets: Ints, out_edges: Ints, edges: Ints,
    sending: Floats, last: Floats, slack: Floats, idle: Floats, step: float,
) -> None:  # fmt: skip
    """Write the slack of every op, (ops,), and for how long its device was idle before it, (ops,), in seconds.

    `by_start` are all ops in the order of their starts, `edges` is (edges, 2), the out-edges of an op are
    `out_edges[offsets[op] : offsets[op + 1]]`, `sending` is (edges,) seconds, and `last` (devices,) is scratch.
    """
    last[:] = 0.0
    for op in by_start:
        idle[op] = max(start[op] - last[device[op]], 0.0)
        last[device[op]] = max(last[device[op]], finish[op])
    last[:] = step  # from now on the latest start of what runs next on each device
    for i in range(len(by_start) - 1, -1, -1):
        op = by_start[i]
        latest = last[device[op]]
        for k in range(offsets[op], offsets[op + 1]):
            edge = out_edges[k]
            reader = edges[edge, 1]
            latest = min(latest, start[reader] + slack[reader] - sending[edge])
        slack[op] = max(latest - finish[op], 0.0)
        last[device[op]] = start[op] + slack[op]


def _near_in_time(placement: Ints, begins: Floats) -> Ints:
    """(units, 4) the units that begin right before and after each on its device, and on any; -1 for none."""
    near = np.full((len(placement), 4), -1)
    for column, order in ((0, np.lexsort((begins, placement))), (2, np.argsort(begins, kind="stable"))):
        near[order[1:], column], near[order[:-1], column + 1] = order[:-1], order[1:]
        if column == 0:
            first = np.flatnonzero(np.diff(placement[order]) != 0)  # the last unit of a device is not near the next's
            near[order[first], 1] = near[order[first + 1], 0] = -1
    return near
