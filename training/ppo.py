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
from torch.nn.utils import clip_grad_norm_

from envs.simulator import Outcomes
from graphs.op_graph import Floats
from training.advantage import rewards, standardised
from training.recipe import Ppo
from training.rollouts import Arena, Policy, Rollouts


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

    def __init__(self, policy: Policy, arenas: Sequence[Arena], settings: Ppo, seed: int) -> None:
        self.policy = policy
        self.arenas = list(arenas)
        for arena in self.arenas:
            arena.view(policy)  # raises InputError where the policy is not for the problem, before anything is run
        self.settings = settings
        self.seed = seed
        self.updates = 0
        self.simulations = 0
        self.optimizer = torch.optim.AdamW(
            policy.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
        )

    def update(self) -> Metrics:
        """Sample placements, simulate them, improve the policy."""
        progress = min(self.updates / max(self.settings.updates - 1, 1), 1.0)
        rate = _between(self.settings.learning_rate, self.settings.final_learning_rate, progress)
        bonus = _between(self.settings.entropy, self.settings.final_entropy, progress)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        rollouts = self._collect()
        for _ in range(self.settings.epochs):
            entropy, clipped = self._improve(rollouts, bonus)
        self.updates += 1
        self.simulations += rollouts.placements.shape[0] * rollouts.placements.shape[1]
        return Metrics(self.updates, self.simulations, rollouts.mean_ratio, rollouts.fitting, entropy, clipped, rate)

    def _collect(self) -> Rollouts:
        seeds = np.random.SeedSequence((self.seed, self.updates)).generate_state(2, np.uint64)
        chooser = np.random.default_rng(seeds[0])
        count = min(self.settings.problems_per_update, len(self.arenas))
        chosen = [self.arenas[i] for i in chooser.choice(len(self.arenas), count, replace=False)]
        generator = torch.Generator().manual_seed(int(seeds[1] >> 1))
        return Rollouts.collect(self.policy, chosen, self.settings.samples, generator, self.advantages)

    def advantages(self, arena: Arena, outcomes: Outcomes) -> Floats:
        """(samples,) how much better each sample of a problem is than its baseline, which may move on."""
        values = rewards(outcomes, arena.memory_bytes, arena.scale_seconds, shape=self.settings.reward)
        if self.settings.baseline == "samples":
            return standardised(values)
        only_fitting = 0 < self.settings.only_fitting_after <= self.updates
        return arena.baseline.compare(values, outcomes.fits | (not only_fitting))

    def _improve(self, rollouts: Rollouts, entropy_bonus: float) -> tuple[float, float]:
        """One gradient step on all samples; returns entropy per unit and the share of clipped ratios."""
        mask: Tensor = rollouts.batch.unit_mask
        scores = self.policy.score(rollouts.batch, rollouts.placements)
        ratio = (scores.log_probability - rollouts.log_probability).exp()
        bounded = ratio.clamp(1 - self.settings.clip, 1 + self.settings.clip)
        advantages = rollouts.advantages[:, :, None]
        gain = torch.minimum(ratio * advantages, bounded * advantages)
        units = mask.sum()
        objective = (gain * mask[:, None, :]).mean(dim=1).sum() / units
        entropy = scores.entropy.sum() / units
        self.optimizer.zero_grad()
        (-objective - entropy_bonus * entropy).backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(self.policy.parameters(), self.settings.gradient_norm)
        self.optimizer.step()
        outside = ((ratio != bounded) & mask[:, None, :]).sum() / (units * ratio.shape[1])
        return float(entropy.detach()), float(outside)


def _between(start: float, end: float, progress: float) -> float:
    return start + (end - start) * progress
