"""The policy of whole plans: a small network that rates the candidates of a problem, by what closed forms say of them.

What it learns is where closed forms are wrong: which of the plans that seem good are good, and which of them fit. A
candidate is rated alone, but for what is known of the problem; of all candidates' ratings a softmax is a distribution.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from envs.costs.costs import costs_of
from envs.plans.plan import Plan
from envs.prepared_problem import PreparedProblem
from envs.simulation.bounds import work_bound
from envs.simulation.simulator import LaidOut
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.learned.plan_policy import PlanPolicy
from placers.learned.settings import FEW_SAMPLES, Settings, WholePlans
from placers.learned.shapes import Size
from placers.learned.whole_plans.candidates import Candidates
from placers.learned.whole_plans.features import FEATURES, WIDTH, rows_of

KIND = "whole_plans"


class WholePlansShape(msgspec.Struct, frozen=True):
    """The knobs of its spec."""

    hidden: Size = 64


@dataclass(frozen=True, eq=False)
class RatedProblem:
    """A problem as the policy sees it, and what its plans take."""

    candidates: Candidates

    @property
    def problem(self) -> Problem:
        """What is to be planned."""
        return self.candidates.problem

    @cached_property
    def rows(self) -> Tensor:
        """(candidates, WIDTH) what is known of each."""
        return torch.from_numpy(rows_of(self.candidates).astype(np.float32))

    @cached_property
    def forms(self) -> list[tuple[str, int]]:
        """(candidates,) the kind and the number of stages of each."""
        return [(each.kind, len(each.pipeline.stages)) for each in self.candidates.each]

    @cached_property
    def bound(self) -> float:
        """Seconds that no plan can beat, whether it divides the batch or not, and a nanosecond at least."""
        return max(work_bound(self.problem, costs_of(self.problem).op_seconds), 1e-9)

    def plan(self, number: int) -> Plan | None:
        """The plan of a candidate; None for one that the problem does not take."""
        try:
            return self.candidates.plan(self.candidates.each[number])
        except InputError:
            return None

    def judged(self, number: int) -> tuple[float, bool]:
        """Step seconds of a candidate op by op, and whether it fits; infinite if the problem does not take it."""
        plan = self.plan(number)
        return (np.inf, False) if plan is None else seconds_of(self.problem, plan)


def seconds_of(problem: Problem, plan: Plan) -> tuple[float, bool]:
    """Step seconds of a plan, op by op, and whether it fits; infinite for one that is not valid."""
    try:
        laid = LaidOut.of(problem, plan)
    except InputError:  # what only the plan as a whole shows
        return np.inf, False
    outcome = laid.simulator().run(laid.placement)
    return outcome.step_seconds, bool((outcome.peak_bytes <= problem.cluster.memory_bytes).all())


class WholePlansPolicy(PlanPolicy):
    """A distribution over the candidates of a problem."""

    kind: ClassVar[str] = KIND
    shape_type: ClassVar[type[msgspec.Struct]] = WholePlansShape
    decoder_features: ClassVar[tuple[str, ...]] = FEATURES

    def __init__(self, shape: WholePlansShape) -> None:
        super().__init__()
        hidden = shape.hidden
        self.rating = nn.Sequential(
            nn.Linear(WIDTH, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )

    def view(self, problem: Problem) -> RatedProblem:
        """What it sees of a problem, made once. Raises InputError if only op placements make sense for it."""
        return RatedProblem(Candidates(problem))

    def logits(self, rows: Tensor) -> Tensor:
        """(candidates,) of rows, (candidates, WIDTH); differentiable."""
        found: Tensor = self.rating(rows)[:, 0]
        return found

    def greedy(self, known: PreparedProblem) -> tuple[float, bool]:
        """As `SavedPolicy.greedy`."""
        view = self.view(known.problem)
        judged = (view.judged(number) for number in self.ranked(view).tolist())
        seconds, fits = next(each for each in judged if np.isfinite(each[0]))
        return seconds / view.bound, fits

    def fine_tuning(self, problem: Problem, simulations: int) -> Settings:  # noqa: ARG002 - for all problems alike
        """A few updates for each simulation."""
        updates = max(1, simulations // FEW_SAMPLES)
        return Settings(whole_plans=WholePlans(updates=updates, problems_per_update=1))
