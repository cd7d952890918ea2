"""Whole plans from a policy: stages, devices, replicas, micro-batches and recomputation, decision by decision (ours).

A pipeline is made without any simulation, in a moment: the best by a formula of a few that are drawn, the most likely
one among them. Of several the best by simulation is taken.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from envs.pipelines.pipeline import LayerPipeline
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.problem import Problem
from placers.learned.learned_placer import NEXT_ROUND, PolicyPlacer
from placers.learned.rounds import rounds
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
        if choices == 1:
            return PlacerResult(self.proposals(problem, 1, seed)[0], self.name, seed)
        best, rank, drawn = None, (True, math.inf), 0
        for number, count in enumerate(rounds(self.seconds, choices)):
            seeing, several = self._drawn(problem, count, seed + number * NEXT_ROUND)
            drawn += len(several)
            for one in several:
                outcome = seeing.view.pipelines.outcome(one)
                if best is None or (not outcome.fits, outcome.step_seconds) < rank:
                    best, rank = one, (not outcome.fits, outcome.step_seconds)
        assert best is not None
        return PlacerResult(best.plan(problem, seeing.view.pipelines.layers), self.name, seed, drawn)

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
