"""OneShotPolicy: every unit's device is drawn at once, independently given the problem (GDP)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from envs.costs.costs import Costs
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.batch import Batch
from placers.learned.features import Observation, observe
from placers.learned.finite import check_outputs


@dataclass(frozen=True, eq=False)
class Scores:
    """How a policy rates placements."""

    log_probability: Tensor  # (problems, samples, units), 0 at padded units
    entropy: Tensor  # (problems, units) nats, 0 at padded units


class OneShotPolicy(nn.Module):
    """A network of `placers/learned/gdp/networks` as a distribution over placements.

    Its logits do not depend on the sample, so a thousand samples of a problem cost one pass through the network.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def view(self, problem: Problem, costs: Costs) -> Observation:
        """What the policy sees of a problem."""
        return observe(problem, costs)

    def stack(self, views: Sequence[Observation]) -> Batch:
        """Several views as a batch."""
        return Batch.of(views)

    def logits(self, batch: Batch) -> Tensor:
        """(problems, units, devices). Raises NotFiniteError if they are no numbers."""
        out: Tensor = self.network(batch)
        check_outputs(out)
        return out

    @torch.no_grad()
    def act(self, batch: Batch, samples: int, generator: torch.Generator) -> Tensor:
        """Draw placements, (problems, samples, units) devices."""
        probabilities = self.logits(batch).softmax(-1)
        drawn = torch.multinomial(probabilities.flatten(0, 1), samples, replacement=True, generator=generator)
        return drawn.view(*probabilities.shape[:2], samples).transpose(1, 2)

    def actions_of(self, batch: Batch, placements: Sequence[Ints]) -> Tensor:
        """(problems, 1, units) the actions that are these placements, (units,) each."""
        return as_columns(placements, batch.unit_mask.shape[1])

    def score(self, batch: Batch, placements: Tensor) -> Scores:
        """Log-probabilities and entropy of placements (problems, samples, units), differentiable."""
        log_probabilities = self.logits(batch).log_softmax(-1)
        table = log_probabilities[:, None].expand(-1, placements.shape[1], -1, -1)
        chosen = table.gather(-1, placements[..., None]).squeeze(-1)
        finite = log_probabilities.masked_fill(torch.isinf(log_probabilities), 0.0)
        entropy = -(finite.exp() * finite * batch.device_mask[:, None, :]).sum(-1)
        return Scores(chosen * batch.unit_mask[:, None, :], entropy * batch.unit_mask)


def as_columns(placements: Sequence[Ints], units: int) -> Tensor:
    """(problems, 1, units) placements, (their own units,) each, side by side; 0 where padded."""
    columns = torch.zeros(len(placements), 1, units, dtype=torch.int64)
    for row, placement in zip(columns[:, 0], placements, strict=True):
        row[: len(placement)] = torch.from_numpy(placement)
    return columns
