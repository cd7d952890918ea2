"""PipeDream's partition (Narayanan et al. 2019) without replicas: contiguous stages with the least bottleneck.

Units are taken in topological order. A stage takes the time of its units on its device, or twice that of the bytes
that enter it if they take longer to send; it must hold no more than its device can, as long as there is such a
partition. Stages are on the devices in their order, some of which may stay empty.

Where the objective is the max-load, it is the baseline of that name in "Efficient Algorithms for Device Placement of
DNN Graph Operators" (Tarnawski et al., NeurIPS 2020): branches are joined until the graph is nearly a path, and the
path is split such that the largest load is least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.costs.costs import costs_of
from envs.held_memory import HeldMemory
from envs.plan import Plan
from envs.simulation.simulator import Simulator
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.search.unit_graph import UnitGraph
from placers.stages.branches import without_branches
from placers.stages.pieces import Pieces
from placers.stages.split import best_within_memory


@dataclass(frozen=True)
class PipeDream:
    """A pipeline without copies of its stages."""

    @property
    def name(self) -> str:
        """Its spec."""
        return "pipedream"

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> Plan:  # noqa: ARG002 - nothing to search
        """Without any simulation."""
        if problem.objective == "max-load":
            return Plan.of_units(problem, _along_a_path(problem), placer=self.name, seed=seed)
        units = UnitGraph.of(problem, Simulator(problem).costs)
        held = HeldMemory.of(problem)
        seconds, memory = units.seconds[units.order], held.per_unit[units.order]
        entering = _bytes_across(units)
        apart = ~np.eye(len(problem.cluster), dtype=np.bool_)
        bandwidth = float(problem.cluster.bandwidth[apart].mean()) if apart.any() else np.inf
        ends = least_bottleneck(seconds, 2 * entering / bandwidth, memory, held.limits)
        if ends is None:
            ends = least_bottleneck(seconds, 2 * entering / bandwidth, memory, np.full(len(held.limits), np.inf))
        assert ends is not None  # without limits there is always a partition
        placement = np.empty(len(units), np.int64)
        placement[units.order] = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
        return Plan.of_units(problem, placement, placer=self.name, seed=seed)


def build() -> PipeDream:
    """The placer; it has no knobs."""
    return PipeDream()


def least_bottleneck(seconds: Floats, entering: Floats, memory: Floats, limits: Floats) -> Ints | None:
    """(devices,) the unit before which each device's stage ends, or None if no partition keeps to the limits.

    `seconds` is (units, devices), `entering` (units,) seconds to send what crosses before each unit, `memory` (units,)
    bytes, `limits` (devices,) bytes.
    """
    units, devices = seconds.shape
    time = np.concatenate([np.zeros((1, devices)), np.cumsum(seconds, axis=0)])
    held = np.concatenate([[0.0], np.cumsum(memory)])
    best = np.full((devices + 1, units + 1), np.inf)
    begin = np.zeros((devices + 1, units + 1), np.int64)
    best[0, 0] = 0.0
    for device in range(devices):
        for end in range(units + 1):
            starts = np.arange(end + 1)
            own = time[end, device] - time[starts, device]
            sent = np.where((starts > 0) & (starts < end), entering[np.minimum(starts, units - 1)], 0.0)
            slowest = np.maximum(best[device, : end + 1], np.maximum(own, sent))
            slowest[held[end] - held[starts] > limits[device]] = np.inf
            begin[device + 1, end] = int(slowest.argmin())
            best[device + 1, end] = slowest.min()
    if not np.isfinite(best[devices, units]):
        return None
    ends = [units]
    for device in range(devices, 1, -1):
        ends.append(int(begin[device, ends[-1]]))
    return np.array(ends[::-1], np.int64)


def _along_a_path(problem: Problem) -> Ints:
    """(units,) devices, with the least max-load of all splits of the graph without its branches."""
    costs = costs_of(problem)
    pieces = Pieces.joined(problem, costs, without_branches(problem, costs))
    return best_within_memory(pieces, placer="pipedream")[pieces.of_unit]


def _bytes_across(units: UnitGraph) -> Floats:
    """(units,) bytes that pass between the units before each in the order and the others."""
    place = np.empty(len(units), np.int64)
    place[units.order] = np.arange(len(units))
    first, last = np.sort(place[units.links], axis=1).T
    change = np.zeros(len(units) + 1)
    np.add.at(change, first + 1, units.link_bytes)
    np.add.at(change, last + 1, -units.link_bytes)
    across: Floats = np.cumsum(change)[: len(units)]
    return across
