"""Throughput: samples per second, one step after the other; minimised as the seconds of a step per sample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from envs.plans.plan import Plan
from envs.simulation.simulator import Outcomes, Placements, Simulator, simulate
from graphs.op_graph import Floats
from graphs.problem import Problem
from graphs.transforms.batch import samples_of

RATE = "samples/s"


@dataclass(frozen=True)
class Throughput:
    """The seconds of a step, divided by its samples. Needs a graph that says how many those are."""

    of_requests: ClassVar[bool] = True

    def evaluator(self, problem: Problem) -> PerSample:
        """The simulator, per sample. Raises InputError for a graph that does not know its batch."""
        return PerSample(problem)

    def of_plan(self, problem: Problem, plan: Plan) -> float:
        """Seconds per sample of a plan, under its own order. Raises InputError likewise."""
        return self.of_step(problem, simulate(problem, plan).step_seconds)

    def of_step(self, problem: Problem, seconds: float) -> float:
        """Seconds per sample of a step that takes so long. Raises InputError likewise."""
        return seconds / samples_of(problem.graph)


class PerSample:
    """Evaluates placements by the seconds of a step per sample."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._samples = samples_of(problem.graph)
        self._simulator = Simulator(problem)

    @property
    def simulations(self) -> int:
        """How many placements it has evaluated."""
        return self._simulator.simulations

    def run_batch(self, placements: Placements, *, threads: int = 1) -> Outcomes:
        """(plans,) seconds per sample of each of (plans, units) placements, and the memory that a step takes."""
        outcomes = self._simulator.run_batch(placements, threads=threads)
        return replace(outcomes, step_seconds=outcomes.step_seconds / self._samples)

    def seconds(self, placements: Placements, *, threads: int = 1) -> Floats:
        """(plans,) seconds per sample of each of (plans, units) placements."""
        per_sample: Floats = self._simulator.seconds(placements, threads=threads) / self._samples
        return per_sample


build = Throughput
