"""PPO over a batch of problems (Schulman et al. 2017), without a critic.

The baseline of a sample is the mean of the other samples of its problem, which the cheap simulator allows: GDP's
objective J = E_G E_D [r] (equation 1) with the expectation over D estimated by many placements per graph. Every
unit's device is one action with a probability ratio of its own, clipped by itself: the ratio of a whole placement,
a product over hundreds of units, would leave the clipping range at once.

With a single epoch ratios are 1, and the update is REINFORCE's; `baseline = "moving_average"` is then that of ColocRL
and HDP (Mirhoseini et al. 2017, 2018), which draw few samples, and compare them with earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, NamedTuple

import numpy as np
import torch
from torch import Tensor

from envs.plans.plan import Plan
from envs.prepared_problem import Incumbent
from envs.simulation.simulator import Outcomes
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from graphs.problem import Problem
from placers.contract.abilities import Repairs
from placers.contract.current_plan import CurrentPlan
from placers.learned.policy import A, Batch, Policy, Scores, View
from placers.learned.settings import Imitation, Ppo, Settings
from training.learning.advantage import change, rewards, standardised, surrogate
from training.learning.divergence import descend, stops_where_it_diverges
from training.learning.labels.demonstrations import Demonstrations
from training.learning.labels.improvement import improve_labels
from training.learning.labels.preferences import preference
from training.learning.labels.schedule import read_schedules, written_schedules
from training.learning.like_sizes import like_sizes
from training.learning.problem_report import by_kind, mean_fitting, mean_over_best, mean_over_bound, mean_reward
from training.learning.ranks import ALONE, Ranks
from training.learning.repairs import plans_to_repair
from training.learning.rollouts import PpoProblem, PpoRollouts
from training.learning.shard import (
    PartReport,
    ProblemShard,
    ShardSample,
    check_shards,
    gathered_reports,
    summed_by_shard,
)
from training.learning.trainer import (
    Trainer,
    generators,
    read_incumbents,
    share_done,
    written_incumbents,
)  # fmt: skip
from training.ppo_rewards import load_ppo_reward
from training.problems.random.renewed import RenewedProblems

IMITATING = 1 << 32  # next to the seed, tells its random numbers from those of PPO's updates
REPAIRING = 1 << 33  # likewise, what draws the plans that are repaired


class Change(NamedTuple):
    """The last pass of an update over its samples in numbers, or what a part adds to them."""

    loss: float
    entropy: float  # nats per unit
    approx_kl: float  # nats per decision, from the policy that drew the samples; 0 in the first pass
    clip_fraction: float  # share of the ratios outside the clipping range; likewise


@dataclass(frozen=True)
class PpoMetrics:
    """One update in numbers; a line of `metrics.jsonl`."""

    update: int
    simulations: int  # so far
    decisions: int  # of the samples
    step_over_bound: float  # geometric mean of step seconds over the lower bound, samples that fit
    step_over_best: float  # likewise, over the fastest step known of each problem
    fitting: float  # share of samples that fit
    ep_rew_mean: float  # reward of a sample
    loss: float  # this and the next three: of the last pass over the samples
    entropy: float
    approx_kl: float
    clip_fraction: float
    gradient_norm: float  # before it was clipped
    learning_rate: float
    by_kind: Mapping[str, float] = field(default_factory=dict)  # "step_over_bound/rnnlm" and others


class PpoTrainer(Trainer, Generic[View, Batch, A]):
    """A `Trainer` of distributions over whole placements."""

    version: ClassVar[str] = "2"
    shares_work: ClassVar[bool] = True

    def __init__(
        self,
        policy: Policy[View, Batch, A],
        problems: Sequence[Problem],
        settings: Ppo,
        seed: int,
        imitation: Imitation | None = None,
        renewed: RenewedProblems | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        super().__init__(seed, settings.updates)
        check_shards(settings, len(problems), renewed, ranks)
        self.policy: Policy[View, Batch, A] = policy
        self.ranks = ranks
        self.shards = [
            ProblemShard(number, settings.shards, policy, problems, renewed)
            for number in range(ranks.rank, settings.shards, ranks.count)
        ]
        for one in {len(each.prepared.problem.cluster): each for each in self.problems}.values():
            _ = one.view  # a policy for another number of devices is refused here, not when it meets one
        self._stay = len(problems)
        if renewed is not None and settings.baseline == "moving_average":
            raise InputError("a moving average is of problems that stay; set world.problems to 0")
        if settings.repairs and not isinstance(policy, Repairs):
            raise InputError(f"a policy of {policy.kind!r} cannot repair plans; set ppo.repairs to 0")
        self.settings = settings
        self._reward = load_ppo_reward(settings.reward)
        self.imitation = imitation or Imitation()
        self.imitation_goal = self.imitation.updates
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(
            [weight for weight in policy.parameters() if weight.requires_grad],
            settings.learning_rate,
            weight_decay=settings.weight_decay,
        )

    @classmethod
    def of(
        cls,
        policy: Policy[View, Batch, A],
        problems: Sequence[Problem],
        settings: Settings,
        seed: int,
        renewed: RenewedProblems | None = None,
        ranks: Ranks = ALONE,
    ) -> PpoTrainer[View, Batch, A]:
        """As `Trainer.of`."""
        return cls(policy, problems, settings.ppo, seed, settings.imitation, renewed, ranks)

    @property
    def problems(self) -> list[PpoProblem[View]]:
        """Those of this process that stay."""
        return [each for shard in self.shards for each in shard.stay.values()]

    def state(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Baselines, counters, and the best placements; of all ranks."""
        mine = {number: each.baseline.value for shard in self.shards for number, each in shard.stay.items()}
        values = {number: value for of_rank in self.ranks.gathered(mine) for number, value in of_rank.items()}
        tensors = {"baselines": torch.tensor([values[i] for i in range(self._stay)], dtype=torch.float64)}
        known = {number: each for shard in self.shards for number, each in shard.known().items()}
        own = written_incumbents({number: each.prepared.incumbent for number, each in known.items()})
        own |= written_schedules({number: each.schedule for number, each in known.items()})
        for of_rank in self.ranks.gathered(own):
            tensors |= of_rank
        _, counters = super().state()
        return tensors, counters

    def restore(self, tensors: Mapping[str, Tensor], counters: Mapping[str, str]) -> None:
        """Take a `state`. Raises InputError for one of another version or seed."""
        super().restore(tensors, counters)
        baselines = tensors.get("baselines", torch.zeros(0)).tolist()
        incumbents, schedules = read_incumbents(tensors), read_schedules(tensors)
        for shard in self.shards:
            for number, each in shard.stay.items():
                each.baseline.value = baselines[number] if number < len(baselines) else each.baseline.value
            for number in filter(shard.holds, incumbents):
                shard.numbered(number).prepared.incumbent = incumbents[number]
            for number in filter(shard.holds, schedules):
                shard.numbered(number).schedule = schedules[number]

    def fine_tune(self, opening: Plan, simulations: int) -> Iterator[tuple[int, Incumbent]]:
        """As `Trainer.fine_tune`."""
        only = self.problems[0].prepared
        priorities = np.array([opening.order]) if isinstance(opening.order, tuple) else None
        only.evaluate(opening.per_unit(only.problem)[None], priorities)
        yield 0, only.incumbent
        for _ in range(simulations // self.settings.samples):
            yield self.update().simulations, only.incumbent

    def imitate(self) -> float:
        """As `Trainer.imitate`, of the best known placements; problems whose labels are due are searched first."""
        with stops_where_it_diverges(self.imitated + 1, self.optimizer, of="imitation"):
            parts = []
            for shard in self.shards:
                drawn, _ = self._chosen(shard, IMITATING, self.imitated)
                for chosen in like_sizes(drawn, self.settings.pairs):
                    simulations = improve_labels(self.policy, chosen, self.imitation, self.seed, self.engine)
                    batch = self.policy.stack([problem.view for problem in chosen])
                    best = Demonstrations.of(self.policy, batch, chosen)
                    parts.append((PartReport.of(shard.number, chosen, simulations), batch, best))
            reports = gathered_reports(self.ranks, [report for report, _, _ in parts])
            self.optimizer.zero_grad()
            likelihoods = []
            for report, batch, best in parts:
                scores = self.policy.score(batch, best.action)
                likelihood = best.likelihood(scores.log_probability[:, 0], scores.of_devices) * report.share(reports)
                (-likelihood).backward()  # type: ignore[no-untyped-call]
                likelihoods.append((report.shard, float(likelihood.detach())))
            self._step()
            self.imitated += 1
            self.simulations += sum(report.simulations for report in reports)
            return float(summed_by_shard(self.ranks, likelihoods)[0])

    def update(self) -> PpoMetrics:
        """As `Trainer.update`."""
        with stops_where_it_diverges(self.updates + 1, self.optimizer):
            progress = share_done(self.updates, self.settings.updates)
            rate, bonus, weight = self.scheduled(self.settings, self.imitation.weight, progress)
            parts = [part for shard in self.shards for part in self._rolled_out(shard, weight)]
            reports = gathered_reports(self.ranks, [part.report for part in parts])
            last, norm = self._improve(parts, reports, bonus, weight)
        self.updates += 1
        self.simulations += sum(report.simulations for report in reports)
        met = [each for report in reports for each in report.problems]
        return PpoMetrics(
            self.updates, self.simulations, sum(report.decisions for report in reports), mean_over_bound(met),
            mean_over_best(met), mean_fitting(met), mean_reward(met), *last, norm, rate, by_kind(met),
        )  # fmt: skip

    def _chosen(self, shard: ProblemShard[View], *seed: int) -> tuple[list[PpoProblem[View]], torch.Generator]:
        """The problems of a shard in an update, and what draws their samples."""
        done = self.imitated + self.updates
        return shard.chosen(self.settings, self.updates, done, *shard.seed(self.seed), *seed)

    def _rolled_out(self, shard: ProblemShard[View], weight: float) -> Iterator[ShardSample[Batch, A]]:
        """Samples of a shard's problems in an update, in parts, and the labels that are to be imitated with them."""
        drawn, generator = self._chosen(shard, self.updates)
        chooser, _ = generators(*shard.seed(self.seed), REPAIRING, self.updates)
        for chosen in like_sizes(drawn, self.settings.pairs):
            plans: Sequence[CurrentPlan | None] = ()
            if self.settings.repairs:
                plans = plans_to_repair(chosen, self.settings.repairs, chooser)
            samples, searched = self.settings.samples, 0
            rollouts = PpoRollouts.collect(
                self.policy, chosen, samples, generator, self.rewards, self.advantages, plans, self.engine,
                self.settings.first_fit,
            )  # fmt: skip
            if weight and self.imitation.again:
                searched = improve_labels(self.policy, chosen, self.imitation, self.seed, self.engine)
            best = Demonstrations.of(self.policy, rollouts.batch, chosen) if weight else None
            report = PartReport.of(shard.number, chosen, searched + rollouts.simulations, rollouts)
            action = rollouts.action if best is None else rollouts.action.cat(best.action)
            yield ShardSample(report, rollouts, best, action)

    def rewards(self, problem: PpoProblem[View], outcomes: Outcomes) -> Floats:
        """(samples,) what each sample of a problem is paid."""
        memory_bytes = problem.prepared.problem.cluster.memory_bytes
        return rewards(outcomes, memory_bytes, problem.prepared.lower_bound, self._reward)

    def advantages(self, problem: PpoProblem[View], outcomes: Outcomes, values: Floats) -> Floats:
        """(samples,) how much better rewards of a problem are than its baseline, which may change by that."""
        if self.settings.baseline == "samples":
            return standardised(values)
        only_fitting = 0 < self.settings.only_fitting_after <= self.updates
        return problem.baseline.compare(values, outcomes.fits | (not only_fitting))

    def _improve(
        self, parts: Sequence[ShardSample[Batch, A]], reports: Sequence[PartReport], bonus: float, weight: float
    ) -> tuple[Change, float]:
        """The gradient steps on all samples; returns what the last changed, and its gradient's norm, not clipped.

        Demonstrations are rated together with the samples, so that the problems are encoded once for both. Each part
        counts by its share of the units of all shards.
        """
        before: dict[ShardSample[Batch, A], Tensor] = {}  # log-probabilities of what drew the samples, the first policy
        last: list[tuple[float, ...]] = []
        norm = 0.0
        for _ in range(self.settings.epochs):
            self.optimizer.zero_grad()
            last = []
            for part in parts:
                share, shard = part.report.share(reports), part.report.shard
                loss, changed = self._loss(part, before, bonus, weight)
                (share * loss).backward()  # type: ignore[no-untyped-call]
                last.append((shard, *(share * each for each in changed)))
            norm = self._step()
        return Change(*summed_by_shard(self.ranks, last).tolist()), norm

    def _loss(
        self, part: ShardSample[Batch, A], before: dict[ShardSample[Batch, A], Tensor], bonus: float, weight: float
    ) -> tuple[Tensor, Change]:
        """The loss of a part, to be differentiated and in numbers."""
        rollouts, best = part.rollouts, part.best
        samples = rollouts.advantages.shape[1]
        scores = self.policy.score(rollouts.batch, part.action)
        log_probability = scores.log_probability[:, :samples]
        drawn = before.setdefault(part, log_probability.detach())
        log_ratio, mask, clip = log_probability - drawn, scores.mask[:, None, :], self.settings.clip
        gain = surrogate(log_ratio, rollouts.advantages[:, :, None], clip) * mask
        units = scores.of_devices.sum()  # those of the order come on top, and make no decision of a device less
        entropy = scores.entropy.sum() / units
        taught = self._taught(scores, rollouts.step_seconds, best, weight)
        loss = -(gain.mean(dim=1).sum() / units) - bonus * entropy - taught
        of_ratios = change(log_ratio, mask.expand_as(log_ratio), clip)
        return loss, Change(float(loss.detach()), float(entropy.detach()), *of_ratios)

    def _taught(
        self, scores: Scores, step_seconds: Tensor, best: Demonstrations[A] | None, weight: float
    ) -> Tensor | float:
        """What labels and pairs of samples add to the objective; labels are rated behind the samples."""
        samples = step_seconds.shape[1]
        taught: Tensor | float = 0.0
        if best is not None:
            taught += weight * best.likelihood(scores.log_probability[:, samples], scores.of_devices)
        if self.imitation.preference:
            decisions = scores.mask.sum(dim=1, keepdim=True).clamp_min(1)
            likelihood = scores.log_probability[:, :samples].sum(dim=2) / decisions
            taught += self.imitation.preference * preference(likelihood, step_seconds)
        return taught

    def _step(self) -> float:
        """A step of the optimizer; returns the norm of the gradients before they are clipped."""
        self.ranks.add_gradients([weight for group in self.optimizer.param_groups for weight in group["params"]])
        return descend(self.optimizer, self.settings.gradient_norm)
