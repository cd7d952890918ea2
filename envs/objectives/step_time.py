"""The step time: the simulated seconds of one training step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from envs.simulation.simulator import Simulator
from graphs.problem import STEP_TIME, Problem


@dataclass(frozen=True)
class StepTime:
    """What the simulator says."""

    name: ClassVar[str] = STEP_TIME

    def evaluator(self, problem: Problem) -> Simulator:
        """The simulator."""
        return Simulator(problem)


build = StepTime
