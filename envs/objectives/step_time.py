"""The step time: the simulated seconds of one training step."""

from dataclasses import dataclass

from envs.simulation.simulator import Simulator
from graphs.problem import Problem


@dataclass(frozen=True)
class StepTime:
    """The seconds of a step."""

    def evaluator(self, problem: Problem) -> Simulator:
        """The simulator."""
        return Simulator(problem)


build = StepTime
