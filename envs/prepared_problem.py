"""PreparedProblem: one problem with all that is made once to evaluate many placements of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from envs.bounds import lower_bound
from envs.costs.costs import fastest_device
from envs.incumbent import Incumbent
from envs.objectives import Evaluator, evaluator_of
from envs.simulation.simulator import Outcomes, Simulator
from graphs.op_graph import Ints
from graphs.problem import Problem


@dataclass(eq=False)
class PreparedProblem:
    """A problem, what evaluates its placements, and the best placement seen; not to be shared between threads."""

    problem: Problem
    priority: str = "fifo"  # of the simulator's queues
    incumbent: Incumbent = field(default_factory=Incumbent)  # of the placements that fit, by their seconds

    @cached_property
    def evaluator(self) -> Evaluator:
        """What evaluates placements by the problem's objective."""
        return evaluator_of(self.problem)

    @cached_property
    def simulator(self) -> Simulator:
        """What times a step under a placement, whatever the objective."""
        return Simulator(self.problem, priority=self.priority)

    @cached_property
    def fastest_device(self) -> int:
        """The device that would take least time to do everything."""
        return fastest_device(self.problem)

    @cached_property
    def lower_bound(self) -> float:
        """Seconds that no placement can beat, and a nanosecond at least: a graph without costs has a bound of 0."""
        return max(lower_bound(self.problem), 1e-9)

    def evaluate(self, drawn: Ints) -> Outcomes:
        """Evaluate placements (plans, units or more, the rest being padding) and remember the best.

        A unit that was drawn where it may not run counts as where its plan would have it.
        """
        placements = self.problem.made_allowed(np.ascontiguousarray(drawn[:, : len(self.problem.units)]))
        outcomes = self.evaluator.run_batch(placements)
        self.incumbent.offer_fitting(placements, outcomes)
        return outcomes
