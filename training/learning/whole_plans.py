"""WholePlansTrainer: a policy of whole plans learns which candidates of a problem are fast, from what all of them take.

The updates of imitation label the problems: every candidate is simulated op by op. Those that follow learn by list-wise
cross-entropy (Cao et al. 2007, ListNet): the ratings' softmax is to be that of the logarithms of seconds, at a low
temperature, so that the fastest candidates count and the order of slow ones does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from graphs.foundation.errors import InputError
from graphs.foundation.items import in_order
from graphs.op_graph import Floats
from graphs.problem import Problem
from placers.learned.plan_policy import PlanPolicy, RatedPlans
from placers.learned.settings import Settings, WholePlans
from training.learning.divergence import descend, stops_where_it_diverges
from training.learning.problem_report import (
    ProblemReport,
    by_kind,
    mean_fitting,
    mean_over_best,
    mean_over_bound,
    mean_reward,
)
from training.learning.ranks import ALONE, Ranks
from training.learning.trainer import Trainer, below, between, share_done
from training.problems.random.renewed import RenewedProblems

LABELLED = 16  # problems of an update that labels them
NOT_FITTING = 3.0  # times its seconds is what a plan counts that does not fit
IMPOSSIBLE = 100.0  # times the fastest plan's is what a candidate counts that the problem does not take


@dataclass(frozen=True)
class WholePlansMetrics:
    """One update in numbers; a line of `metrics.jsonl`."""

    update: int
    simulations: int  # so far, all of labels
    decisions: int  # the best rated plan of each problem
    step_over_bound: float  # geometric mean of those plans' seconds over what no plan can beat, if they fit
    step_over_best: float  # likewise, over those of the best candidate
    fitting: float  # share of those plans
    ep_rew_mean: float  # of a problem: log of the best candidate's seconds over the plan's, less if it does not fit
    loss: float  # cross-entropy, nats
    entropy: float  # of the ratings of a problem, nats
    gradient_norm: float  # before it was clipped
    by_kind: Mapping[str, float] = field(default_factory=dict)  # "step_over_bound/rnnlm" and others


@dataclass(frozen=True)
class CandidateTimes:
    """What all candidates of a problem take."""

    seconds: Floats  # (candidates,) of a step; infinite for what the problem does not take
    fits: Floats  # (candidates,) 1 for what does

    @classmethod
    def of(cls, view: RatedPlans) -> CandidateTimes:
        """By simulation of each."""
        judged = np.array([view.judged(number) for number in range(len(view.rows))], np.float64)
        return cls(*judged.T)

    @property
    def costs(self) -> Floats:
        """(candidates,) logarithms of seconds over the least; what does not fit counts more, and most what is no plan.

        All are 0 where no candidate can be made.
        """
        usable = np.isfinite(self.seconds)
        if not usable.any():
            return np.zeros(len(self.seconds))
        counted = np.where(usable, self.seconds * np.where(self.fits > 0, 1.0, NOT_FITTING), np.inf)
        return np.asarray(np.minimum(np.log(counted / counted.min()), np.log(IMPOSSIBLE)))

    def report(self, view: RatedPlans, number: int) -> ProblemReport:
        """How one of the candidates does."""
        usable = self.seconds[self.fits > 0]
        return ProblemReport.of(
            view.problem, self.seconds[[number]], self.fits[[number]] > 0, bound=view.bound,
            best=float(usable.min()) if len(usable) else np.nan, reward=-float(self.costs[number]),
        )  # fmt: skip


@dataclass(frozen=True)
class BestKnownPlan:
    """The best plan of a problem so far."""

    made: Plan
    value: float  # seconds; infinite if it does not fit

    def plan(self, problem: Problem) -> Plan | None:  # noqa: ARG002 - as an `Incumbent`
        """The plan; None if it does not fit."""
        return self.made if np.isfinite(self.value) else None


class WholePlansTrainer(Trainer):
    """A `Trainer` of policies that rate candidates, on problems that stay.

    Raises InputError for another objective than the step time.
    """

    version: ClassVar[str] = "3"
    knows_step_times_only: ClassVar[bool] = True
    shares_work: ClassVar[bool] = True
    divides_batch: ClassVar[bool] = True

    def __init__(self, policy: PlanPolicy, problems: Sequence[Problem], settings: WholePlans, seed: int) -> None:
        super().__init__(seed, settings.updates)
        for problem in problems:
            problem.check_step_time("a policy of whole plans", "a policy that learns by PPO")
        self.policy: PlanPolicy = policy
        self.settings = settings
        self.problems = [policy.view(each) for each in problems]
        self.times = dict[int, CandidateTimes]()  # by the number of a problem
        self.imitation_goal = -(-len(problems) // LABELLED)
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(
            policy.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
        )

    @classmethod
    def of(
        cls,
        policy: PlanPolicy,
        problems: Sequence[Problem],
        settings: Settings,
        seed: int,
        renewed: RenewedProblems | None = None,  # noqa: ARG003 - it learns from problems whose plans are known
        ranks: Ranks = ALONE,
    ) -> WholePlansTrainer:
        """As `Trainer.of`. Raises InputError for several ranks."""
        if ranks.count > 1:
            raise InputError("a policy of whole plans learns in one process; start it without torchrun")
        return cls(policy, problems, settings.whole_plans, seed)

    def state(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Labels and counters."""
        labels = {
            f"label.{number}": torch.from_numpy(np.stack([each.seconds, each.fits]))
            for number, each in self.times.items()
        }
        _, counters = super().state()
        return labels, counters

    def restore(self, tensors: Mapping[str, Tensor], counters: Mapping[str, str]) -> None:
        """Take a `state`. Raises InputError for one of another version or seed."""
        super().restore(tensors, counters)
        self.times = {int(number): CandidateTimes(*label.numpy()) for number, label in below("label.", tensors).items()}

    def imitate(self) -> float:
        """Label the next problems; NaN, as nothing is learned."""
        first = self.imitated * LABELLED
        several = self.problems[first : first + LABELLED]
        for number, found in enumerate(in_order(self.engine, CandidateTimes.of, several), start=first):
            self.times[number] = found
            self.simulations += len(found.seconds)
        self.imitated += 1
        return float("nan")

    def update(self) -> WholePlansMetrics:
        """As `Trainer.update`."""
        settings, rng = self.settings, np.random.default_rng((self.seed, self.updates))
        share = share_done(self.updates, settings.updates)
        self.take_rate(between(settings.learning_rate, settings.final_learning_rate, share))
        count = min(settings.problems_per_update, len(self.problems))
        chosen = rng.choice(len(self.problems), count, replace=False).tolist()
        losses, entropies, reports = list[Tensor](), list[float](), list[ProblemReport]()
        with stops_where_it_diverges(self.updates + 1, self.optimizer):
            for number in chosen:
                times, view = self.times[number], self.problems[number]
                logits = self.policy.logits(view.rows)
                losses.append(self._cross_entropy(logits, times.costs))
                likely = logits.detach().log_softmax(0)
                entropies.append(-float((likely.exp() * likely).sum()))
                reports.append(times.report(view, int(logits.argmax())))
            loss = torch.stack(losses).mean()
            norm = self._descend(loss)
        self.updates += 1
        return WholePlansMetrics(
            self.updates, self.simulations, len(chosen), mean_over_bound(reports), mean_over_best(reports),
            mean_fitting(reports), mean_reward(reports), float(loss.detach()), float(np.mean(entropies)), norm,
            by_kind(reports),
        )  # fmt: skip

    def fine_tune(self, opening: Plan, simulations: int) -> Iterator[tuple[int, BestKnownPlan]]:
        """As `Trainer.fine_tune`: candidates are simulated as they are rated, and those that are known are learned."""
        view, best = self.problems[0], self._timed(opening)
        yield 0, best
        known = dict[int, tuple[float, bool]]()
        for _ in range(min(simulations, len(view.rows))):
            number = next(each for each in self.policy.ranked(view).tolist() if each not in known)
            seconds, fits = known[number] = view.judged(number)
            self.simulations += 1
            plan = view.plan(number) if fits and seconds < best.value else None
            best = best if plan is None else BestKnownPlan(plan, seconds)
            numbers = list(known)
            costs = CandidateTimes(*np.array([known[each] for each in numbers], np.float64).T).costs
            self._descend(self._cross_entropy(self.policy.logits(view.rows)[numbers], costs))
            yield self.simulations, best

    def _cross_entropy(self, logits: Tensor, costs: Floats) -> Tensor:
        """Of (candidates,) ratings, to those that costs ask for."""
        wanted = torch.from_numpy(-costs / self.settings.temperature).softmax(0).float()
        return -(wanted * logits.log_softmax(0)).sum()

    def _descend(self, loss: Tensor) -> float:
        """A step of the optimizer; the norm of the gradient before it is clipped."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        return descend(self.optimizer, self.settings.gradient_norm)

    def _timed(self, plan: Plan) -> BestKnownPlan:
        timeline = simulate(self.problems[0].problem, plan)
        return BestKnownPlan(plan, timeline.step_seconds if timeline.fits else float("inf"))
