"""PPO over a batch of problems (Schulman et al. 2017), without a critic.

The baseline of a sample is the mean of the other samples of its problem, which the cheap simulator allows: GDP's
objective J = E_G E_D [r] (equation 1) with the expectation over D estimated by many placements per graph. Every
unit's device is one action with a probability ratio of its own, clipped by itself: the ratio of a whole placement,
a product over hundreds of units, would leave the clipping range at once.

With a single epoch ratios are 1, and the update is REINFORCE's; `baseline = "moving_average"` is then that of ColocRL
and HDP (Mirhoseini et al. 2017, 2018), which draw few samples, and compare them with earlier ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from envs.simulation.simulator import Outcomes
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.op_graph import Floats, Ints
from training.advantage import rewards, standardised, surrogate
from training.divergence import descend, stops_where_it_diverges
from training.imitation import Shown, search
from training.ppo_rewards import load_ppo_reward
from training.recipe import Imitation, Ppo
from training.rollouts import Arena, Policy, Rollouts
from training.schedule import between, share_done

FIRST_SHARE = 0.2  # of the problems, of the smallest graphs, with which a curriculum begins
IMITATING = 1 << 32  # beside the seed, tells its random numbers from those of PPO's updates


@dataclass(frozen=True)
class Metrics:
    """One update in numbers; a line of `metrics.jsonl`."""

    update: int
    simulations: int  # so far
    step_over_bound: float  # geometric mean of step seconds over the lower bound, samples that fit
    fitting: float  # share of samples that fit
    entropy: float  # nats per unit
    clipped: float  # share of the ratios outside the clipping range
    learning_rate: float

    def to_record(self) -> dict[str, float]:
        """As a flat record."""
        return asdict(self)


class PpoTrainer:
    """A policy, its optimizer, and the problems it learns from.

    Each update draws from a generator seeded by (seed, update), so that a run resumed from a checkpoint goes on as if
    it had never stopped.
    """

    def __init__(
        self, policy: Policy, arenas: Sequence[Arena], settings: Ppo, seed: int, imitation: Imitation | None = None
    ) -> None:
        limit_torch_threads()
        self.policy = policy
        self.arenas = list(arenas)
        for arena in self.arenas:
            arena.view(policy)  # raises InputError where the policy is not for the problem, before anything is run
        self.settings = settings
        self._reward = load_ppo_reward(settings.reward)
        self.imitation = imitation or Imitation()
        self.seed = seed
        self.imitated = 0  # updates of imitation alone
        self.updates = 0
        self.simulations = 0
        self.optimizer = torch.optim.AdamW(
            policy.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
        )

    def imitate(self) -> float:
        """An update of imitation alone: make the best known placements likelier; returns how likely they were.

        That is the mean log-probability per unit. Problems without a known placement are searched first. Raises
        InputError if the policy diverges.
        """
        with stops_where_it_diverges(self.imitated + 1, self.optimizer, of="imitation"):
            return self._imitate()

    def _imitate(self) -> float:
        chosen, _ = self._chosen((self.seed, IMITATING, self.imitated))
        for arena in chosen:
            if arena.best_placement is None:
                search(arena, self.imitation.simulations, self.seed)
                self.simulations += self.imitation.simulations
        batch = self.policy.stack([arena.view(self.policy) for arena in chosen])
        shown = Shown.to(self.policy, batch, chosen)
        likelihood = shown.likelihood(self.policy.score(batch, shown.actions).log_probability[:, 0])
        self._step(-likelihood)
        self.imitated += 1
        return float(likelihood.detach())

    def update(self) -> Metrics:
        """Sample placements, simulate them, improve the policy. Raises InputError if it diverges."""
        with stops_where_it_diverges(self.updates + 1, self.optimizer):
            return self._update()

    def _update(self) -> Metrics:
        progress = share_done(self.updates, self.settings.updates)
        rate = between(self.settings.learning_rate, self.settings.final_learning_rate, progress)
        bonus = between(self.settings.entropy, self.settings.final_entropy, progress)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        weight = between(self.imitation.weight, 0.0, progress)
        chosen, generator = self._chosen((self.seed, self.updates))
        rollouts = Rollouts.collect(self.policy, chosen, self.settings.samples, generator, self.advantages)
        shown = Shown.to(self.policy, rollouts.batch, chosen) if weight else None
        entropy, clipped = self._improve(rollouts, bonus, shown, weight)
        self.updates += 1
        self.simulations += rollouts.placements.shape[0] * rollouts.placements.shape[1]
        return Metrics(self.updates, self.simulations, rollouts.mean_ratio, rollouts.fitting, entropy, clipped, rate)

    def _chosen(self, seed: tuple[int, ...]) -> tuple[list[Arena], torch.Generator]:
        """The problems of an update, and what draws its samples."""
        seeds = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        chooser = np.random.default_rng(seeds[0])
        joined = self._joined()
        count = min(self.settings.problems_per_update, len(joined))
        chosen = [self.arenas[i] for i in chooser.choice(joined, count, replace=False)]
        return chosen, torch.Generator().manual_seed(int(seeds[1] >> 1))

    def _joined(self) -> Ints:
        """The problems to choose from: all, or those of smaller graphs while the curriculum lasts."""
        lasts = self.settings.curriculum * self.settings.updates
        if self.updates >= lasts:
            return np.arange(len(self.arenas))
        share = between(FIRST_SHARE, 1.0, self.updates / lasts)
        by_size = np.argsort([len(arena.problem.graph) for arena in self.arenas], kind="stable")
        return by_size[: max(1, round(share * len(self.arenas)))]

    def advantages(self, arena: Arena, outcomes: Outcomes) -> Floats:
        """(samples,) how much better each sample of a problem is than its baseline, which may move on."""
        values = rewards(outcomes, arena.memory_bytes, arena.scale_seconds, self._reward)
        if self.settings.baseline == "samples":
            return standardised(values)
        only_fitting = 0 < self.settings.only_fitting_after <= self.updates
        return arena.baseline.compare(values, outcomes.fits | (not only_fitting))

    def _improve(self, rollouts: Rollouts, bonus: float, shown: Shown | None, weight: float) -> tuple[float, float]:
        """The gradient steps on all samples; returns entropy per unit and the share of clipped ratios in the last.

        What is shown is rated beside the samples, so that the problems are encoded once for both.
        """
        samples = rollouts.placements.shape[1]
        actions = rollouts.placements if shown is None else torch.cat([rollouts.placements, shown.actions], 1)
        before: Tensor | None = None
        for _ in range(self.settings.epochs):
            scores = self.policy.score(rollouts.batch, actions)
            log_probability = scores.log_probability[:, :samples]
            before = log_probability.detach() if before is None else before  # the policy that drew them is the first
            objective, clipped = self._objective(log_probability - before, rollouts)
            entropy = scores.entropy.sum() / rollouts.batch.unit_mask.sum()
            imitated = 0.0 if shown is None else weight * shown.likelihood(scores.log_probability[:, samples])
            self._step(-objective - bonus * entropy - imitated)
        return float(entropy.detach()), clipped

    def _objective(self, log_ratio: Tensor, rollouts: Rollouts) -> tuple[Tensor, float]:
        """PPO's clipped objective per unit, of log-ratios of probability like the actions; and the share clipped."""
        mask: Tensor = rollouts.batch.unit_mask[:, None, :]
        gain = surrogate(log_ratio, rollouts.advantages[:, :, None], self.settings.clip) * mask
        units = mask.sum()
        outside = (((log_ratio.exp() - 1).abs() > self.settings.clip) & mask).sum() / (units * log_ratio.shape[1])
        return gain.mean(dim=1).sum() / units, float(outside)

    def _step(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        descend(self.optimizer, self.settings.gradient_norm)
