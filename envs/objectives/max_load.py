"""Max-load: what the busiest device does per sample when samples are pipelined (Tarnawski et al., NeurIPS 2020)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from envs.simulation.device_loads import Loads
from envs.simulation.simulator import Outcomes, Placements, Simulator
from graphs.op_graph import Floats
from graphs.problem import Problem


@dataclass(frozen=True)
class MaxLoad:
    """The load of the busiest device (`envs.simulation.device_loads`)."""

    pipelined: ClassVar[bool] = True

    def evaluator(self, problem: Problem) -> BusiestDevice:
        """Its seconds per sample."""
        return BusiestDevice(problem)


class BusiestDevice:
    """Evaluates placements by the load of the busiest device; what memory they take is the simulator's peak."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.simulations = 0
        self._simulator = Simulator(problem)
        self._loads = Loads(problem, self._simulator.costs)

    def run_batch(self, placements: Placements, *, threads: int = 1) -> Outcomes:
        """(plans,) seconds of each of (plans, units) placements, and the memory that a simulated step takes."""
        outcomes = self._simulator.run_batch(placements, threads=threads)
        return replace(outcomes, step_seconds=self.seconds(placements))

    def seconds(self, placements: Placements, *, threads: int = 1) -> Floats:  # noqa: ARG002 - one is fast enough
        """(plans,) seconds of each of (plans, units) placements, without simulating any."""
        per_op = self._simulator.checked(placements)[:, self.problem.graph.units]
        self.simulations += len(per_op)
        most: Floats = self._loads.on_devices(per_op.astype(np.int64)).max(axis=1)
        return most


build = MaxLoad
