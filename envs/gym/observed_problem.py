"""ObservedProblem: one problem of an environment, with what observations show of its units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from envs.prepared_problem import PreparedProblem
from envs.simulation.simulator import Outcome, Simulator
from graphs.op_graph import Bools, Floats, Ints
from graphs.problem import Problem

RENDERING: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 10}  # gymnasium's metadata


@dataclass(frozen=True, eq=False)
class ObservedProblem:
    """A prepared problem; all that is shown of its units is between 0 and 1."""

    prepared: PreparedProblem

    @classmethod
    def of(cls, problem: Problem, priority: str = "fifo") -> ObservedProblem:
        """Prepare a problem."""
        return cls(PreparedProblem(problem, priority))

    @property
    def problem(self) -> Problem:
        """The problem itself."""
        return self.prepared.problem

    @property
    def simulator(self) -> Simulator:
        """What times its placements."""
        return self.prepared.simulator

    @cached_property
    def features(self) -> Floats:
        """(units, devices + 2) seconds on each device, bytes sent, bytes of weights; each a share of the largest."""
        units = self.problem.units
        seconds = units.summed(self.simulator.costs.op_seconds)
        columns = [_of_largest(seconds), _of_largest(units.sent_bytes), _of_largest(self._weight_bytes)]
        return np.column_stack(columns)

    @cached_property
    def edge_bytes(self) -> Floats:
        """(edges,) bytes that each edge between units carries, as a share of the heaviest edge's."""
        return _of_largest(self.problem.units.edge_bytes)

    @cached_property
    def can_hold(self) -> Bools:
        """(units, devices) whether the unit may run there and the device has room for its weights.

        Room is not asked for where no allowed device has it.
        """
        can_hold: Bools = self._weight_bytes[:, None] <= self.problem.cluster.memory_bytes
        if self.problem.allowed is not None:
            allowed = self.problem.allowed
            can_hold = (can_hold | ~(can_hold & allowed).any(axis=1, keepdims=True)) & allowed
        return can_hold

    def allowed(self, unit: int) -> Bools:
        """(devices,) where a unit's weights have room; everywhere if they have room nowhere."""
        allowed = self.can_hold[unit]
        return allowed.copy() if allowed.any() else np.ones_like(allowed)

    @cached_property
    def _weight_bytes(self) -> Floats:
        """(units,) bytes of each unit's distinct weights, with gradients and optimizer state."""
        return self.problem.units.weight_bytes(self.problem.weight_state_bytes)


def outcome_info(observed: ObservedProblem, outcome: Outcome) -> dict[str, Any]:
    """What an environment says in addition to the observation."""
    return {
        "problem": observed.problem.name,
        "step_seconds": outcome.step_seconds,
        "peak_bytes": outcome.peak_bytes,
        "fits": outcome.fits,
    }


def render(observed: ObservedProblem, placement: Ints, mode: str | None) -> Any:
    """The Gantt chart of a placement, (units,) devices, as text or pixels; None without a mode."""
    if mode is None:
        return None
    timeline = observed.simulator.timeline(placement)
    return timeline.draw() if mode == "ansi" else timeline.image()


def _of_largest(values: Floats) -> Floats:
    """Values >= 0 as shares of the largest (Placeto divides features by their column's maximum)."""
    largest = values.max(initial=0.0)
    return values / largest if largest > 0 else np.zeros_like(values)
