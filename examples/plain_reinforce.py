"""A trainer in one file: GDP's policy learns by plain REINFORCE (Williams 1992), whose baseline is the samples' mean.

placelab train plain_reinforce.toml --out runs/reinforced
placelab evaluate runs/reinforced --allow-code
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

import msgspec
import torch

from envs.prepared_problem import PreparedProblem
from graphs.problem import Problem
from placers.learned.gdp.policy import OneShotPolicy
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.settings import LearningRate, Positive
from training.learning.divergence import descend, stops_where_it_diverges
from training.learning.trainer import Trainer, generators

TRAINER = "PlainReinforce"
NOT_FITTING = 10.0  # times its seconds is what a plan counts that does not fit


class PlainReinforceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The section [trainer] of a recipe."""

    updates: Positive = 80
    samples: Annotated[int, msgspec.Meta(ge=2)] = 16  # plans of each problem in an update
    learning_rate: LearningRate = 0.03  # of Adam


@dataclass(frozen=True)
class PlainReinforceMetrics:
    """One update in numbers, a line of `metrics.jsonl`."""

    update: int
    step_over_bound: float
    fitting: float
    decisions: int
    by_kind: Mapping[str, float] = field(default_factory=dict)


class PlainReinforce(Trainer):
    """Each sample's log-probability is weighed by how much faster it is than the others of its problem."""

    settings_type = PlainReinforceSettings

    def __init__(
        self, policy: OneShotPolicy, problems: Sequence[Problem], settings: PlainReinforceSettings, seed: int
    ) -> None:
        super().__init__(seed, settings.updates)
        self.policy: OneShotPolicy = policy
        self.settings = settings
        self.problems = [PreparedProblem(each) for each in problems]
        self.batch = policy.stack([policy.view(each) for each in problems])
        self.optimizer = torch.optim.Adam(policy.parameters(), settings.learning_rate)

    def update(self) -> PlainReinforceMetrics:
        """Draw plans, simulate them, and make the faster ones likelier."""
        _, generator = generators(self.seed, self.updates)  # so that a resumed run ends as if it had never stopped
        action = self.policy.act(self.batch, self.settings.samples, generator)
        outcomes = [each.evaluate(drawn.numpy()) for each, drawn in zip(self.problems, action.devices, strict=True)]
        seconds = torch.stack([torch.from_numpy(each.step_seconds) for each in outcomes])  # (problems, samples)
        fits = torch.stack([torch.from_numpy(each.fits) for each in outcomes])
        over_bound = (seconds / torch.tensor([[each.lower_bound] for each in self.problems])).log()
        reward = -(over_bound + (~fits) * torch.tensor(NOT_FITTING).log())
        advantage = (reward - reward.mean(1, keepdim=True)) / (reward.std() + 1e-6)
        with stops_where_it_diverges(self.updates + 1, self.optimizer):
            self.optimizer.zero_grad()
            scores = self.policy.score(self.batch, action)
            loss = -(advantage[..., None] * scores.log_probability).sum(-1).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            descend(self.optimizer, 1.0)
        self.updates += 1
        self.simulations += seconds.numel()
        decisions = int(scores.mask.sum()) * self.settings.samples
        mean = float(over_bound[fits].mean().exp())
        return PlainReinforceMetrics(self.updates, mean, float(fits.double().mean()), decisions)


new_policy = OneShotPolicy.new
build = partial(LearnedPlacer.with_network, OneShotPolicy, network="graphsage_transformer")
