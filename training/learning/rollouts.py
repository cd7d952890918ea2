"""Rollouts of PPO: sampled placements of a few problems, evaluated by their objectives and turned into advantages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Generic

import numpy as np
import torch
from torch import Tensor

from envs.prepared_problem import PreparedProblem, outcomes_of
from envs.simulation.simulator import Outcomes
from graphs.foundation.engine import Engine
from graphs.foundation.items import Threads, in_order
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.contract.abilities import Repairs
from placers.contract.current_plan import CurrentPlan, PlanReader
from placers.learned.policy import A, Batch, Policy, View
from placers.search.starts import SIMULATION
from training.learning.advantage import MovingAverage, gains_over
from training.learning.fitted_samples import made_to_fit
from training.learning.labels.schedule import LabelSchedule
from training.learning.problem_report import ProblemReport


@dataclass(eq=False)
class PpoProblem(Generic[View]):
    """One problem for many rollouts of one policy."""

    prepared: PreparedProblem
    see: Callable[[Problem], View]  # makes what the policy sees of it
    baseline: MovingAverage = field(default_factory=MovingAverage)  # of its rewards, where they are compared with it
    schedule: LabelSchedule = field(default_factory=LabelSchedule)  # of the searches for its label, the incumbent

    @cached_property
    def view(self) -> View:
        """What the policy sees of it, made when the policy first meets it: of many problems that takes seconds."""
        return self.see(self.prepared.problem)

    @cached_property
    def reader(self) -> PlanReader:
        """What looks at plans of it that are to be repaired."""
        return PlanReader(self.prepared.problem, self.prepared.simulator)

    def report(self, outcomes: Outcomes, rewards: Floats) -> ProblemReport:
        """How samples with (samples,) rewards did, which were offered to the best known placement before."""
        prepared = self.prepared
        return ProblemReport.of(
            prepared.problem, outcomes.step_seconds, outcomes.fits, bound=prepared.lower_bound,
            best=prepared.incumbent.value, reward=float(rewards.mean()),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Simulations:
    """Samples of a problem to be simulated. Another process makes what evaluates them once for each problem."""

    prepared: PreparedProblem
    placements: Ints  # (samples, units)
    priorities: Floats | None  # (samples, ops)

    @property
    def seconds(self) -> float:
        """What simulating them takes, by estimate."""
        return len(self.placements) * SIMULATION.seconds(self.prepared.problem)

    def do(self) -> Outcomes:
        """What each costs."""
        return outcomes_of(self.prepared.evaluator, self.placements, self.priorities)

    def __reduce__(self) -> tuple[Any, ...]:
        return _elsewhere, (self.prepared.problem, self.placements, self.priorities)


def _elsewhere(problem: Problem, placements: Ints, priorities: Floats | None) -> Simulations:
    return Simulations(_prepared(problem), placements, priorities)


@lru_cache(maxsize=16)  # problems, which are the same objects as long as a process keeps them
def _prepared(problem: Problem) -> PreparedProblem:
    return PreparedProblem(problem)


RewardFunction = Callable[[PpoProblem[View], Outcomes], Floats]
AdvantageFunction = Callable[[PpoProblem[View], Outcomes, Floats], Floats]


@dataclass(frozen=True, eq=False)
class PpoRollouts(Generic[Batch, A]):
    """What one update learns from."""

    batch: Batch
    action: A  # several samples of each problem
    advantages: Tensor  # (problems, samples)
    step_seconds: Tensor  # (problems, samples); infinite for what does not fit
    reports: tuple[ProblemReport, ...]  # of each problem
    simulations: int  # of the samples, and of what makes some of them fit

    @classmethod
    def collect(
        cls,
        policy: Policy[View, Batch, A],
        problems: Sequence[PpoProblem[View]],
        samples: int,
        generator: torch.Generator,
        rewards_of: RewardFunction[View],
        advantages_of: AdvantageFunction[View],
        plans: Sequence[CurrentPlan | None] = (),
        engine: Engine | None = None,
        first_fit: int = 0,
    ) -> PpoRollouts[Batch, A]:
        """Draw and simulate `samples` placements of each problem.

        `rewards_of` gives their (samples,) rewards, and `advantages_of` makes (samples,) advantages of these. Samples
        that do not fit in memory are paid for what `first_fit` simulations, if there are some, make of each.

        Of problems with a plan only some units are placed again, and the samples are compared with that plan.
        Simulations are items for an engine, by default threads: the simulator leaves the interpreter's lock to others.
        """
        plans = plans or [None] * len(problems)
        batch = policy.stack([each.view for each in problems])
        action: A
        if any(plans):
            assert isinstance(policy, Repairs)
            action = policy.repair(batch, samples, generator, plans)
        else:
            action = policy.act(batch, samples, generator)
        prepared = [each.prepared for each in problems]
        advantages, reports = [], []
        orders = policy.drawn_orders(batch, action)
        asked = [
            Simulations(each, each.made_allowed(drawn), order)
            for each, drawn, order in zip(prepared, action.devices.numpy(), orders, strict=True)
        ]
        engine = engine or Threads()
        results = in_order(engine, Simulations.do, asked)
        for simulations, outcomes in zip(asked, results, strict=True):
            simulations.prepared.remember(simulations.placements, outcomes, simulations.priorities)
        paid, further = made_to_fit(prepared, [each.placements for each in asked], results, first_fit, engine)
        for problem, plan, own, outcomes in zip(problems, plans, results, paid, strict=True):
            rewards = rewards_of(problem, outcomes)
            advantages.append(
                advantages_of(problem, outcomes, rewards) if plan is None else gains_over(plan.step_seconds, outcomes)
            )
            reports.append(problem.report(own, rewards))
        return PpoRollouts(
            batch,
            action,
            torch.from_numpy(np.stack(advantages)).float(),
            torch.from_numpy(np.stack([np.where(each.fits, each.step_seconds, np.inf) for each in results])),
            tuple(reports),
            sum(len(each.placements) for each in asked) + further,
        )
