"""Whole plans of all kinds from a policy: the best rated of a problem's candidates, or the best of several (ours).

Candidates are what closed forms propose (`placers.learned.whole_plans.candidates`). Without a simulation the best rated
one is the plan; of several the best by simulation, op by op, is taken.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import ClassVar

from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from graphs.foundation.errors import InputError
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.problem import Problem
from placers.learned.learned_placer import PolicyPlacer
from placers.learned.rounds import rounds
from placers.learned.whole_plans.policy import KIND, RatedProblem, WholePlansPolicy, seconds_of

TRAINER = "whole_plans"


@dataclass(frozen=True, eq=False)
class WholePlansPlacer(PolicyPlacer[WholePlansPolicy]):
    """A policy's best rated plan, or the best of several by simulation."""

    divides_batch: ClassVar[bool] = True

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The best rated plan, unsimulated, if one is asked for; else the best of several by simulation, op by op.

        Nothing is drawn: all seeds give the same plan. Raises InputError for a problem for which only op placements
        make sense, or without any plan that it takes.
        """
        choices = max(1, min(self.samples or budget, budget))
        plans = self._plans(problem)
        first = next(plans, None)
        if first is None:
            raise InputError(f"{self.name}: {problem.name} takes none of the plans that are proposed; take 'planner'")
        if choices == 1:
            return PlacerResult(first, self.name, seed)
        best, rank, tried = first, (True, math.inf), 0
        for count in rounds(self.seconds, choices):
            several = ([first] if not tried else []) + list(islice(plans, count - (not tried)))
            for plan in several:
                seconds, fits = seconds_of(problem, plan)
                if (not fits, seconds) < rank:
                    best, rank = plan, (not fits, seconds)
            tried += len(several)
        return PlacerResult(best, self.name, seed, tried)

    def proposals(self, problem: Problem, count: int, seed: int) -> list[Plan]:  # noqa: ARG002 - nothing is drawn
        """At most `count` plans, the best rated first, none simulated. Raises InputError as `place` does."""
        return list(islice(self._plans(problem), count))

    def _plans(self, problem: Problem) -> Iterator[Plan]:
        """Plans that the problem takes, the best rated first, without equal ones."""
        limit_torch_threads()
        policy = self.policy_for(problem)
        view: RatedProblem = policy.view(problem)
        seen = set[Plan]()
        for number in policy.ranked(view).tolist():
            plan = view.plan(number)
            if plan is None or plan in seen:
                continue
            try:
                plan.check(problem)
            except InputError:
                continue
            seen.add(plan)
            yield plan


new_policy = WholePlansPolicy.new
build = partial(WholePlansPlacer.with_network, WholePlansPolicy, network=KIND)
