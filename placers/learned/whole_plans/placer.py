"""Whole plans from a policy: stages, devices, replicas, micro-batches and recomputation, decision by decision (ours).

A pipeline is made without any simulation, in a moment: the best by a formula of a few that are drawn, the most likely
one among them. Of several the best by simulation is taken.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from envs.pipelines.pipeline import LayerPipeline
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.problem import Problem
from placers.learned.learned_placer import PolicyPlacer
from placers.learned.whole_plans.decision_features import ProblemContext
from placers.learned.whole_plans.policy import KIND, WholePlansPolicy

TRAINER = "whole_plans"


@dataclass(frozen=True, eq=False)
class WholePlansPlacer(PolicyPlacer[WholePlansPolicy]):
    """A policy's best pipeline by formula, or the best of several by simulation."""

    divides_batch: ClassVar[bool] = True

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The best pipeline by formula, unsimulated, if one is asked for; else the best of several by simulation.

        They are simulated at the grain of stages. Raises InputError for a problem for which only op placements make
        sense.
        """
        choices = max(1, min(self.samples or budget, budget))
        seeing, several = self._drawn(problem, choices, seed)
        layers = seeing.view.pipelines.layers
        if choices == 1:
            return PlacerResult(several[0].plan(problem, layers), self.name, seed)
        outcomes = [seeing.view.pipelines.outcome(one) for one in several]
        best = min(range(choices), key=lambda each: (not outcomes[each].fits, outcomes[each].step_seconds))
        return PlacerResult(several[best].plan(problem, layers), self.name, seed, choices)

    def proposals(self, problem: Problem, count: int, seed: int) -> list[Plan]:
        """At most `count` plans, the best by formula first, none simulated. Raises InputError as `place` does."""
        seeing, several = self._drawn(problem, count, seed)
        return [one.plan(problem, seeing.view.pipelines.layers) for one in several]

    def _drawn(self, problem: Problem, count: int, seed: int) -> tuple[ProblemContext, list[LayerPipeline]]:
        limit_torch_threads()
        policy = self.policy_for(problem)
        seeing = policy.view(problem)
        return seeing, policy.promising(seeing, count, seed)


new_policy = WholePlansPolicy.new
build = partial(WholePlansPlacer.with_network, WholePlansPolicy, network=KIND)
