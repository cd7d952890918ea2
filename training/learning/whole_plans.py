"""WholePlansTrainer: a policy of whole plans imitates what search found, then learns by REINFORCE (Williams 1992).

The first updates of imitation search labels: of each problem that stays the best pipeline that is known. The next ones
learn those by heart. Updates by REINFORCE draw pipelines and simulate them; the baseline of a sample is the mean of its
problem's samples, as in PPO here (`training.learning.ppo`), and decisions of labels are imitated next to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Generic, NamedTuple

import numpy as np
import torch
from torch import Tensor

from envs.pipelines.pipeline import LayerPipeline
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from graphs.foundation.errors import InputError
from graphs.foundation.items import in_order
from graphs.op_graph import Bools, Floats
from graphs.problem import Problem
from placers.learned.plan_policy import Decision, Label, PlanPolicy, bound_of_plans
from placers.learned.policy import View
from placers.learned.settings import Settings, WholePlans
from training.learning.divergence import descend, stops_where_it_diverges
from training.learning.problem_report import ProblemReport, by_kind, mean_fitting, mean_over_bound, mean_reward
from training.learning.ranks import ALONE, Ranks
from training.learning.trainer import Trainer, below, between, share_done
from training.problems.random.renewed import RenewedProblems

IMITATED, DRAWN = 1 << 34, 1 << 35  # tell random numbers apart, next to a seed
SEARCHED = 16  # labels of an update of imitation that searches them
NOT_FITTING = 3.0  # times its step is what a pipeline counts that does not fit
MOST = 2.0  # standard deviations of an advantage
VERSION = "2"  # of its state on disk
COUNTERS = ("updates", "imitated", "simulations")


class Step(NamedTuple):
    """A step of the optimizer in numbers."""

    loss: float
    entropy: float  # nats per decision
    gradient_norm: float  # before it was clipped
    label_log_probability: float  # per decision; NaN without labels


@dataclass(frozen=True)
class WholePlansMetrics:
    """One update in numbers; a line of `metrics.jsonl`."""

    update: int
    simulations: int  # so far, those of labels too
    decisions: int  # of the samples
    step_over_bound: float  # geometric mean of step seconds over what no plan can beat, samples that fit
    fitting: float  # share of the samples
    ep_rew_mean: float  # of a sample: log of one device's seconds over its own, less if it does not fit
    loss: float
    entropy: float  # nats per decision
    gradient_norm: float  # before it was clipped
    label_log_probability: float  # per decision; NaN without labels
    by_kind: Mapping[str, float] = field(default_factory=dict)  # "step_over_bound/rnnlm" and others


@dataclass(frozen=True)
class PlanLabelSearch:
    """A search for the label of a problem, which finds the same in whichever process."""

    policy: type[PlanPolicy[View, Decision]]  # type: ignore[valid-type]  # of whichever view
    problem: Problem
    simulations: int

    def do(self) -> Label:
        """Search."""
        return self.policy.search(self.problem, self.simulations)


@dataclass(frozen=True)
class BestKnownPlan:
    """The best plan of a problem so far."""

    made: Plan
    value: float  # seconds; infinite if it does not fit

    def plan(self, problem: Problem) -> Plan | None:  # noqa: ARG002 - as an `Incumbent`
        """The plan; None if it does not fit."""
        return self.made if np.isfinite(self.value) else None


@dataclass(eq=False)
class PlanProblem(Generic[View, Decision]):
    """One problem, as a policy meets it."""

    policy: PlanPolicy[View, Decision]
    problem: Problem
    label: Label = ()

    @cached_property
    def view(self) -> View:
        """What the policy sees of it."""
        return self.policy.view(self.problem)

    @cached_property
    def labelled(self) -> list[Decision]:
        """The decisions that lead to its label."""
        return self.policy.decisions_of(self.view, self.label) if self.label else []

    def judged(self, pipelines: Sequence[LayerPipeline]) -> tuple[Floats, Bools]:
        """(pipelines,) step seconds of each, and whether it fits; equal ones are simulated once."""
        known = {each: self.policy.judge(self.view, each) for each in dict.fromkeys(pipelines)}
        return np.array([known[each][0] for each in pipelines]), np.array([known[each][1] for each in pipelines])


@dataclass(frozen=True)
class Samples(Generic[View, Decision]):
    """Pipelines of a problem that an update has drawn."""

    problem: PlanProblem[View, Decision]
    pipelines: list[LayerPipeline]
    decisions: list[list[Decision]]
    seconds: Floats  # (samples,)
    fits: Bools  # (samples,)

    @classmethod
    def draw(
        cls, problem: PlanProblem[View, Decision], count: int, rng: np.random.Generator
    ) -> Samples[View, Decision]:
        """Draw `count` pipelines, and simulate them."""
        drawn = [problem.policy.draw(problem.view, rng) for _ in range(count)]
        pipelines = [pipeline for pipeline, _ in drawn]
        return cls(problem, pipelines, [taken for _, taken in drawn], *problem.judged(pipelines))

    @cached_property
    def rewards(self) -> Floats:
        """(samples,) log of the fastest device's seconds alone over each step; less for one that does not fit."""
        alone = self.problem.policy.seconds_alone(self.problem.view)
        return np.asarray(-np.log(self.seconds / alone) - np.where(self.fits, 0.0, np.log(NOT_FITTING)))

    @property
    def advantages(self) -> Floats:
        """(samples,) by how much the logarithm of each step is less than their mean."""
        return np.asarray(self.rewards - self.rewards.mean())

    @property
    def report(self) -> ProblemReport:
        """How they did; the bound is what no plan can beat."""
        problem, reward = self.problem.problem, float(self.rewards.mean())
        return ProblemReport.of(problem, self.seconds, self.fits, bound=bound_of_plans(problem), reward=reward)


class WholePlansTrainer(Trainer, Generic[View, Decision]):
    """A `Trainer` of distributions over whole plans.

    Of several problems to learn from in an update, half are new ones if there are random problems. Raises InputError
    for another objective than the step time.
    """

    knows_step_times_only: ClassVar[bool] = True
    shares_work: ClassVar[bool] = True
    divides_batch: ClassVar[bool] = True

    def __init__(
        self,
        policy: PlanPolicy[View, Decision],
        problems: Sequence[Problem],
        settings: WholePlans,
        seed: int,
        renewed: RenewedProblems | None = None,
    ) -> None:
        super().__init__(seed, settings.updates)
        for problem in problems:
            problem.check_step_time("a policy of whole plans", "a policy that learns by PPO")
        self.policy: PlanPolicy[View, Decision] = policy
        self.settings, self._renewed = settings, renewed
        self.problems = [PlanProblem(policy, each) for each in problems]
        self._searches = -(-len(problems) // SEARCHED) if settings.imitation else 0  # updates that search labels
        self.imitation_goal = self._searches + settings.imitation
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(
            policy.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
        )

    @classmethod
    def of(
        cls,
        policy: PlanPolicy[View, Decision],
        problems: Sequence[Problem],
        settings: Settings,
        seed: int,
        renewed: RenewedProblems | None = None,
        ranks: Ranks = ALONE,
    ) -> WholePlansTrainer[View, Decision]:
        """As `Trainer.of`. Raises InputError for several ranks."""
        if ranks.count > 1:
            raise InputError("a policy of whole plans learns in one process; start it without torchrun")
        return cls(policy, problems, settings.whole_plans, seed, renewed)

    def state(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Labels and counters."""
        labels = {
            f"label.{number}": torch.tensor(each.label) for number, each in enumerate(self.problems) if each.label
        }
        return labels, {"version": VERSION} | {name: str(getattr(self, name)) for name in (*COUNTERS, "seed")}

    def restore(self, tensors: Mapping[str, Tensor], counters: Mapping[str, str]) -> None:
        """Take a `state`. Raises InputError for one of another version or seed."""
        for key, ours in (("version", VERSION), ("seed", str(self.seed))):
            if counters.get(key) != ours:
                raise InputError(f"written with {key} {counters.get(key)}, this run has {key} {ours}")
        for number, label in below("label.", tensors).items():
            self.problems[int(number)].label = tuple(label.tolist())
        self.updates, self.imitated, self.simulations = (int(counters[name]) for name in COUNTERS)

    def imitate(self) -> float:
        """As `Trainer.imitate`; NaN of an update that searches labels. Raises InputError if none is found at all."""
        done, settings = self.imitated - self._searches, self.settings
        if done < 0:
            self._search()
            self.imitated += 1
            return float("nan")
        with stops_where_it_diverges(done + 1, self.optimizer, of="imitation"):
            share = share_done(done, settings.imitation)
            self.take_rate(between(settings.learning_rate, settings.final_learning_rate, share))
            likely = self.policy.score(self._labelled(np.random.default_rng((self.seed, IMITATED, done))))[0].mean()
            self.optimizer.zero_grad()
            (-likely).backward()  # type: ignore[no-untyped-call]
            descend(self.optimizer, settings.gradient_norm)
        self.imitated += 1
        return float(likely.detach())

    def update(self) -> WholePlansMetrics:
        """As `Trainer.update`."""
        return self._update()[0]

    def fine_tune(self, opening: Plan, simulations: int) -> Iterator[tuple[int, BestKnownPlan]]:
        """As `Trainer.fine_tune`. The fastest pipeline of an update is simulated again, op by op.

        The fastest so far is the label of the problem, so that the policy imitates itself (Oh et al. 2018).
        """
        only = self.problems[0]
        best, fastest = self._timed(opening), np.inf
        yield 0, best
        while self.simulations + self.settings.samples < simulations:
            _, [samples] = self._update()
            seconds = np.where(samples.fits, samples.seconds, np.inf)
            least = int(seconds.argmin())
            if seconds[least] < fastest:
                fastest, only.labelled = float(seconds[least]), samples.decisions[least]
                found = self._timed(self.policy.plan(only.view, samples.pipelines[least]))
                best = min(best, found, key=lambda each: each.value)
                self.simulations += 1
            yield self.simulations, best

    def _timed(self, plan: Plan) -> BestKnownPlan:
        timeline = simulate(self.problems[0].problem, plan)
        return BestKnownPlan(plan, timeline.step_seconds if timeline.fits else float("inf"))

    def _search(self) -> None:
        """Search the next labels."""
        first = self.imitated * SEARCHED
        several = self.problems[first : first + SEARCHED]
        searches = [
            PlanLabelSearch(type(self.policy), each.problem, self.settings.label_simulations) for each in several
        ]
        for problem, label in zip(several, in_order(self.engine, PlanLabelSearch.do, searches), strict=True):
            problem.label = label
        self.simulations += len(searches) * self.settings.label_simulations
        if self.imitated + 1 == self._searches and not any(each.label for each in self.problems):
            raise InputError("no search has found a plan that fits; raise whole_plans.label_simulations")

    def _labelled(self, rng: np.random.Generator) -> list[Decision]:
        """Some decisions of labels; each label's count as much as those of another one."""
        labelled, decisions = self._known(), list[Decision]()
        for each in rng.permutation(len(labelled)).tolist():
            if len(decisions) >= self.settings.batch:
                break
            decisions += labelled[each].labelled
        return decisions

    def _known(self) -> list[PlanProblem[View, Decision]]:
        """The problems that stay and have a label, or all if no labels are searched."""
        return [each for each in self.problems if each.label] if self.settings.imitation else self.problems

    def _update(self) -> tuple[WholePlansMetrics, list[Samples[View, Decision]]]:
        """Draw pipelines, simulate them, improve the policy; what was drawn, too."""
        settings = self.settings
        self.take_rate(settings.reinforce_rate)
        rng = np.random.default_rng((self.seed, DRAWN, self.updates))
        drawn = [Samples.draw(each, settings.samples, rng) for each in self._chosen(rng)]
        self.simulations += sum(len(each.pipelines) for each in drawn)
        improved = self._improve(rng, drawn)
        self.updates += 1
        decisions = sum(len(taken) for each in drawn for taken in each.decisions)
        reports = [each.report for each in drawn]
        line = WholePlansMetrics(
            self.updates, self.simulations, decisions, mean_over_bound(reports), mean_fitting(reports),
            mean_reward(reports), *improved, by_kind(reports),
        )  # fmt: skip
        return line, drawn

    def _chosen(self, rng: np.random.Generator) -> list[PlanProblem[View, Decision]]:
        """The problems of an update."""
        stay, wanted = self._known(), self.settings.problems_per_update
        count = min(wanted // 2 if self._renewed else wanted, len(stay))
        chosen = [stay[each] for each in rng.choice(len(stay), count, replace=False).tolist()]
        if self._renewed is not None:
            first = self.updates * wanted
            new = [self._renewed.problem(first + each) for each in range(wanted - count)]
            chosen += [PlanProblem(self.policy, each) for each in new]
        return chosen

    def _improve(self, rng: np.random.Generator, drawn: Sequence[Samples[View, Decision]]) -> Step:
        """A step of the optimizer."""
        settings = self.settings
        advantage = np.concatenate([each.advantages for each in drawn])
        advantage = np.clip(advantage / max(float(advantage.std()), 1e-3), -MOST, MOST)
        episodes = [taken for each in drawn for taken in each.decisions]
        decisions = [each for taken in episodes for each in taken]
        weights = np.repeat(advantage, [len(taken) for taken in episodes])
        with stops_where_it_diverges(self.updates + 1, self.optimizer):
            found, entropy = self.policy.score(decisions)
            labelled = self._labelled(rng)
            likely = self.policy.score(labelled)[0].mean() if labelled else torch.zeros(())
            gain = (found * torch.from_numpy(weights).float()).sum() / len(decisions)
            loss = -gain - settings.entropy * entropy.mean() - settings.label_weight * likely
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            norm = descend(self.optimizer, settings.gradient_norm)
        likelihood = float(likely.detach()) if labelled else float("nan")
        return Step(float(loss.detach()), float(entropy.mean().detach()), norm, likelihood)
