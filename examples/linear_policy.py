"""A policy in one file: each unit's devices are rated by a weighted sum of their features, and PPO learns the weights.

placelab train linear_policy.toml --out runs/linear
placelab evaluate runs/linear --allow-code
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
import torch
from torch import Tensor, nn

from envs.costs.costs import costs_of
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.batch import Batch
from placers.learned.features import PAIR_FEATURES, Observation, observe
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.policy import Policy, Scores, UnitDevices
from placers.learned.settings import Settings, brief_ppo

TRAINER = "ppo"


class Shape(msgspec.Struct, frozen=True):
    """The knobs of `network` in a recipe: "linear:hidden=16"."""

    hidden: int = 16


class LinearPolicy(Policy[Observation, Batch, UnitDevices]):
    """Units are placed independently of one another: a softmax over devices for each."""

    kind = "linear"
    shape_type = Shape

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.rate = nn.Sequential(nn.Linear(len(PAIR_FEATURES), shape.hidden), nn.Tanh(), nn.Linear(shape.hidden, 1))

    def view(self, problem: Problem) -> Observation:
        """Features of units, devices, and pairs of both."""
        return observe(problem, costs_of(problem))

    def stack(self, views: Sequence[Observation]) -> Batch:
        """Padded to the largest problem."""
        return Batch.of(views)

    def logits(self, batch: Batch) -> Tensor:
        """(problems, units, devices)."""
        rated: Tensor = self.rate(batch.pairs).squeeze(-1)
        return rated.masked_fill(~batch.device_mask[:, None], -1e9)

    @torch.no_grad()
    def act(self, batch: Batch, samples: int, generator: torch.Generator) -> UnitDevices:
        """Draw a device for each unit."""
        chances = self.logits(batch).softmax(-1)
        drawn = torch.multinomial(chances.flatten(0, 1), samples, replacement=True, generator=generator)
        return UnitDevices(drawn.view(*chances.shape[:2], samples).transpose(1, 2))

    def score(self, batch: Batch, action: UnitDevices) -> Scores:
        """Log-probability of each unit's device, and the entropy of its distribution."""
        table = self.logits(batch).log_softmax(-1)
        spread = table[:, None].expand(-1, action.devices.shape[1], -1, -1)
        chosen = spread.gather(-1, action.devices[..., None]).squeeze(-1)
        entropy = -(table.exp() * table).sum(-1)
        return Scores(chosen * batch.unit_mask[:, None], entropy * batch.unit_mask, batch.unit_mask)

    def actions_of(self, batch: Batch, placements: Sequence[Ints]) -> UnitDevices:
        """What would have to be drawn for placements that a search found."""
        return UnitDevices.of(placements, batch.unit_mask.shape[1])

    @torch.no_grad()
    def candidates(self, problem: Problem, count: int, seed: int) -> Ints:
        """The most likely placement, and drawn ones."""
        batch = self.stack([self.view(problem)])
        drawn = self.act(batch, count, torch.Generator().manual_seed(seed)).devices[0]
        drawn[0] = self.logits(batch)[0].argmax(-1)
        placements: Ints = drawn.numpy()
        return placements

    def fine_tuning(self, problem: Problem, simulations: int) -> Settings:  # noqa: ARG002 - the same for every problem
        """How `placelab finetune` trains it."""
        return Settings(ppo=brief_ppo(simulations, samples=4))


new_policy = LinearPolicy.new
build = partial(LearnedPlacer.with_network, LinearPolicy, network="linear")
