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
from dataclasses import dataclass
from typing import ClassVar, Generic

import numpy as np
import torch
from torch import Tensor

from envs.plan import Plan
from envs.prepared_problem import Incumbent, PreparedProblem
from envs.simulation.simulator import Outcomes
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from graphs.problem import Problem
from placers.learned.policy import A, Batch, Policy, Scores, View
from placers.learned.sequential.current_plan import CurrentPlan
from placers.learned.settings import Imitation, Ppo, Settings
from training.advantage import rewards, standardised, surrogate
from training.divergence import descend, stops_where_it_diverges
from training.labels.demonstrations import Demonstrations
from training.labels.improvement import improve_labels
from training.labels.preferences import preference
from training.labels.schedule import read_schedules, written_schedules
from training.ppo_rewards import load_ppo_reward
from training.renewal import RenewedPool
from training.repairs import plans_to_repair
from training.rollouts import PpoProblem, PpoRollouts
from training.trainer import (
    Trainer,
    between,
    generators,
    read_incumbents,
    share_done,
    written_incumbents,
)  # fmt: skip
from training.world.renewed import RenewedProblems

FIRST_SHARE = 0.2  # of the problems, of the smallest graphs, with which a curriculum begins
IMITATING = 1 << 32  # next to the seed, tells its random numbers from those of PPO's updates
REPAIRING = 1 << 33  # likewise, what draws the plans that are repaired
VERSION = "2"  # of its state on disk
COUNTERS = ("updates", "imitated", "simulations")


@dataclass(frozen=True)
class PpoMetrics:
    """One update in numbers; a line of `metrics.jsonl`."""

    update: int
    simulations: int  # so far
    step_over_bound: float  # geometric mean of step seconds over the lower bound, samples that fit
    fitting: float  # share of samples that fit
    entropy: float  # nats per unit
    clipped: float  # share of the ratios outside the clipping range
    learning_rate: float


class PpoTrainer(Trainer, Generic[View, Batch, A]):
    """A `Trainer` of distributions over whole placements."""

    knows_step_times_only: ClassVar[bool] = False

    def __init__(
        self,
        policy: Policy[View, Batch, A],
        problems: Sequence[Problem],
        settings: Ppo,
        seed: int,
        imitation: Imitation | None = None,
        renewed: RenewedProblems | None = None,
    ) -> None:
        super().__init__(seed, settings.updates)
        self.policy: Policy[View, Batch, A] = policy
        self.problems = [PpoProblem(PreparedProblem(problem), policy.view) for problem in problems]
        for one in {len(problem.cluster): each for problem, each in zip(problems, self.problems, strict=True)}.values():
            _ = one.view  # a policy for another number of devices is refused here, not when it meets one
        if renewed is not None and settings.baseline == "moving_average":
            raise InputError("a moving average is of problems that stay; set world.problems to 0")
        self.renewed = None if renewed is None else RenewedPool(renewed, policy.view)
        if settings.repairs and not policy.can_repair:
            raise InputError(f"a policy of {policy.kind!r} places all units at once; set ppo.repairs to 0")
        self.settings = settings
        self._reward = load_ppo_reward(settings.reward)
        self.imitation = imitation or Imitation()
        self.imitation_goal = self.imitation.updates
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(
            policy.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
        )

    @classmethod
    def of(
        cls,
        policy: Policy[View, Batch, A],
        problems: Sequence[Problem],
        settings: Settings,
        seed: int,
        renewed: RenewedProblems | None = None,
    ) -> PpoTrainer[View, Batch, A]:
        """As `Trainer.of`."""
        return cls(policy, problems, settings.ppo, seed, settings.imitation, renewed)

    def state(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Baselines, counters, and the best placements, where the policy imitates them."""
        tensors = {"baselines": torch.tensor([each.baseline.value for each in self.problems], dtype=torch.float64)}
        if self.imitation.simulations or self.settings.repairs:
            known = self._known()
            tensors |= written_incumbents({number: each.prepared.incumbent for number, each in known.items()})
            tensors |= written_schedules({number: each.schedule for number, each in known.items()})
        counters = {name: str(getattr(self, name)) for name in (*COUNTERS, "seed")}
        return tensors, {"version": VERSION, **counters}

    def restore(self, tensors: Mapping[str, Tensor], counters: Mapping[str, str]) -> None:
        """Take a `state`. Raises InputError for one of another version or seed."""
        for key, ours in (("version", VERSION), ("seed", str(self.seed))):
            if counters.get(key) != ours:
                raise InputError(f"written with {key} {counters.get(key)}, this run has {key} {ours}")
        for each, value in zip(self.problems, tensors.get("baselines", torch.zeros(0)).tolist(), strict=False):
            each.baseline.value = value
        for index, best in read_incumbents(tensors).items():
            self._numbered(index).prepared.incumbent = best
        for index, schedule in read_schedules(tensors).items():
            self._numbered(index).schedule = schedule
        self.updates, self.imitated, self.simulations = (int(counters[name]) for name in COUNTERS)

    def fine_tune(self, opening: Plan, simulations: int) -> Iterator[tuple[int, Incumbent]]:
        """As `Trainer.fine_tune`."""
        only = self.problems[0].prepared
        priorities = None if isinstance(opening.order, str) else np.array([opening.order])
        only.evaluate(opening.per_unit(only.problem)[None], priorities)
        yield 0, only.incumbent
        for _ in range(simulations // self.settings.samples):
            yield self.update().simulations, only.incumbent

    def imitate(self) -> float:
        """As `Trainer.imitate`, of the best known placements; problems whose labels are due are searched first."""
        with stops_where_it_diverges(self.imitated + 1, self.optimizer, of="imitation"):
            chosen, _ = self._chosen(self.seed, IMITATING, self.imitated)
            self.simulations += improve_labels(self.policy, chosen, self.imitation, self.seed)
            batch = self.policy.stack([problem.view for problem in chosen])
            best = Demonstrations.of(self.policy, batch, chosen)
            scores = self.policy.score(batch, best.action)
            likelihood = best.likelihood(scores.log_probability[:, 0], scores.of_devices)
            self._step(-likelihood)
            self.imitated += 1
            return float(likelihood.detach())

    def update(self) -> PpoMetrics:
        """As `Trainer.update`."""
        with stops_where_it_diverges(self.updates + 1, self.optimizer):
            progress = share_done(self.updates, self.settings.updates)
            rate, bonus, weight = self.scheduled(self.settings, self.imitation.weight, progress)
            chosen, generator = self._chosen(self.seed, self.updates)
            plans = self._plans_to_repair(chosen)
            samples = self.settings.samples
            rollouts = PpoRollouts.collect(self.policy, chosen, samples, generator, self.advantages, plans)
            if weight and self.imitation.again:
                self.simulations += improve_labels(self.policy, chosen, self.imitation, self.seed)
            best = Demonstrations.of(self.policy, rollouts.batch, chosen) if weight else None
            entropy, clipped = self._improve(rollouts, bonus, best, weight)
        self.updates += 1
        self.simulations += rollouts.advantages.numel()
        return PpoMetrics(self.updates, self.simulations, rollouts.mean_ratio, rollouts.fitting, entropy, clipped, rate)

    def _chosen(self, *seed: int) -> tuple[list[PpoProblem[View]], torch.Generator]:
        """The problems of an update, and what draws its samples.

        Of those that stay, the smaller ones while the curriculum lasts; a share of all is random ones that are renewed.
        """
        chooser, generator = generators(*seed)
        wanted, drawn = self.settings.problems_per_update, list[PpoProblem[View]]()
        if self.renewed is not None:
            share = self.renewed.source.settings.share if self.problems else 1.0
            drawn = self.renewed.drawn(chooser, int(chooser.binomial(wanted, share)), self.imitated + self.updates)
        joined, lasts = np.arange(len(self.problems)), self.settings.curriculum * self.settings.updates
        if self.updates < lasts:
            share = between(FIRST_SHARE, 1.0, self.updates / lasts)
            by_size = np.argsort([len(each.prepared.problem.graph) for each in self.problems], kind="stable")
            joined = by_size[: max(1, round(share * len(self.problems)))]
        count = min(wanted - len(drawn), len(joined))
        return drawn + [self.problems[i] for i in chooser.choice(joined, count, replace=False)], generator

    def _known(self) -> dict[int, PpoProblem[View]]:
        """The problems by number, those that stay first, then the random ones that were met and are held."""
        stay = dict(enumerate(self.problems))
        renewed = {} if self.renewed is None else self.renewed.known()
        return stay | {len(stay) + number: each for number, each in renewed.items()}

    def _numbered(self, number: int) -> PpoProblem[View]:
        """One of `_known`, which is made if need be."""
        if number < len(self.problems):
            return self.problems[number]
        if self.renewed is None:
            raise InputError("written by a run that had random problems")
        return self.renewed.at(number - len(self.problems))

    def _plans_to_repair(self, chosen: Sequence[PpoProblem[View]]) -> Sequence[CurrentPlan | None]:
        """A plan of each of the chosen problems that is to be repaired in this update."""
        if not self.settings.repairs:
            return ()
        chooser, _ = generators(self.seed, REPAIRING, self.updates)
        return plans_to_repair(chosen, self.settings.repairs, chooser)

    def advantages(self, problem: PpoProblem[View], outcomes: Outcomes) -> Floats:
        """(samples,) how much better each sample of a problem is than its baseline, which may change by that."""
        memory_bytes = problem.prepared.problem.cluster.memory_bytes
        values = rewards(outcomes, memory_bytes, problem.prepared.lower_bound, self._reward)
        if self.settings.baseline == "samples":
            return standardised(values)
        only_fitting = 0 < self.settings.only_fitting_after <= self.updates
        return problem.baseline.compare(values, outcomes.fits | (not only_fitting))

    def _improve(
        self, rollouts: PpoRollouts[Batch, A], bonus: float, best: Demonstrations[A] | None, weight: float
    ) -> tuple[float, float]:
        """The gradient steps on all samples; returns entropy per unit and the share of clipped ratios in the last.

        Demonstrations are rated together with the samples, so that the problems are encoded once for both.
        """
        samples = rollouts.advantages.shape[1]
        action = rollouts.action if best is None else rollouts.action.cat(best.action)
        before: Tensor | None = None
        for _ in range(self.settings.epochs):
            scores = self.policy.score(rollouts.batch, action)
            log_probability = scores.log_probability[:, :samples]
            before = log_probability.detach() if before is None else before  # the policy that drew them is the first
            log_ratio, mask, clip = log_probability - before, scores.mask[:, None, :], self.settings.clip
            gain = surrogate(log_ratio, rollouts.advantages[:, :, None], clip) * mask
            units = scores.of_devices.sum()  # those of the order come on top, and make no decision of a device less
            clipped = (((log_ratio.exp() - 1).abs() > clip) & mask).sum() / (mask.sum() * samples)
            entropy = scores.entropy.sum() / units
            taught = self._taught(scores, rollouts.step_seconds, best, weight)
            self._step(-(gain.mean(dim=1).sum() / units) - bonus * entropy - taught)
        return float(entropy.detach()), float(clipped)

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

    def _step(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        descend(self.optimizer, self.settings.gradient_norm)
