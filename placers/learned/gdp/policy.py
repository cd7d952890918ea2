"""OneShotPolicy: every unit's device is drawn at once, independently given the problem (GDP)."""

from collections.abc import Sequence
from math import isqrt
from typing import ClassVar, Self

import numpy as np
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from envs.costs.costs import costs_of
from envs.simulation.held_memory import HeldMemory, Room
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.learned.batch import Batch
from placers.learned.features import Observation, observe
from placers.learned.finite import check_outputs
from placers.learned.policy import Policy, Scores, UnitDevices
from placers.learned.settings import FEW_SAMPLES, SELF_IMITATION, Imitation, Settings, brief_ppo
from placers.learned.shapes import weights_drawn_from

HIGHEST_TEMPERATURE = 8.0  # of the last sample; the first has 1
HIGHEST_FILL, LOWEST_FILL = 0.9, 0.7  # shares of the memory to fill by estimate, from the first sample to the last


class OneShotPolicy(Policy[Observation, Batch, UnitDevices]):
    """A network of `placers/learned/gdp/networks` as a distribution over placements.

    Its logits do not depend on the sample, so a thousand samples of a problem cost one pass through the network.
    """

    kind: ClassVar[str] = "gdp"

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    @classmethod
    def new(cls, network: str, seed: int) -> Self:
        """An untrained policy over the network that a spec names; same seed, same weights."""
        with weights_drawn_from(seed):
            return cls(by_name.build("placers.learned.gdp.networks", network))

    def view(self, problem: Problem) -> Observation:
        """What the policy sees of a problem."""
        return observe(problem, costs_of(problem))

    def stack(self, views: Sequence[Observation]) -> Batch:
        """Several views as a batch."""
        return Batch.of(views)

    def logits(self, batch: Batch) -> Tensor:
        """(problems, units, devices), -inf at padded devices. Raises NotFiniteError if they are no numbers.

        Raises InputError for a network of a user's own whose outputs have another shape.
        """
        out: Tensor = self.network(batch)
        expected = (*batch.unit_mask.shape, batch.device_mask.shape[1])
        if out.shape != expected:
            raise InputError(
                f"the network {type(self.network).__name__} returned {tuple(out.shape)}; expected (problems, units, "
                f"devices), here {expected}"
            )
        check_outputs(out)
        return out.masked_fill(~batch.device_mask[:, None], -torch.inf)

    @torch.no_grad()
    def act(self, batch: Batch, samples: int, generator: torch.Generator) -> UnitDevices:
        """Draw placements."""
        probabilities = self.logits(batch).softmax(-1)
        drawn = torch.multinomial(probabilities.flatten(0, 1), samples, replacement=True, generator=generator)
        return UnitDevices(drawn.view(*probabilities.shape[:2], samples).transpose(1, 2))

    def actions_of(self, batch: Batch, placements: Sequence[Ints]) -> UnitDevices:
        """The actions that are these placements, (units,) each."""
        return UnitDevices.of(placements, batch.unit_mask.shape[1])

    def score(self, batch: Batch, action: UnitDevices) -> Scores:
        """Log-probabilities and entropy of placements, differentiable; a decision is a unit's device."""
        log_probabilities = self.logits(batch).log_softmax(-1)
        table = log_probabilities[:, None].expand(-1, action.devices.shape[1], -1, -1)
        chosen = table.gather(-1, action.devices[..., None]).squeeze(-1)
        finite = log_probabilities.masked_fill(torch.isinf(log_probabilities), 0.0)
        entropy = -(finite.exp() * finite * batch.device_mask[:, None, :]).sum(-1)
        mask = batch.unit_mask
        return Scores(chosen * mask[:, None, :], entropy * mask, mask)

    @torch.no_grad()
    def candidates(self, problem: Problem, count: int, seed: int) -> Ints:
        """(count, units) the most likely placement, and samples at rising temperatures, all made to fit in memory."""
        logits = self.logits(self.stack([self.view(problem)]))[0]
        return candidates(logits, HeldMemory.of(problem), count, torch.Generator().manual_seed(seed))

    def fine_tuning(self, problem: Problem, simulations: int) -> Settings:  # noqa: ARG002 - for all problems alike
        """Fast: every unit is drawn by itself, and most must be nearly certain before samples are any good.

        A larger budget buys more updates and more samples in each, or it would be certain long before the end.
        """
        ppo = brief_ppo(simulations, max(FEW_SAMPLES, isqrt(simulations // 4)))
        ppo = replace(ppo, learning_rate=4e-3, final_learning_rate=8e-4)
        return Settings(ppo=ppo, imitation=Imitation(weight=SELF_IMITATION))


def candidates(logits: Tensor, held: HeldMemory, count: int, generator: torch.Generator) -> Ints:
    """(count, units) placements from logits (units, devices): the most likely one, then samples of rising temperature.

    GDP's paper samples plainly; the rest is ours. Plain samples of a trained policy hardly differ, since its
    probabilities are close to 0 or 1. A higher temperature lets the undecided units vary first. Each placement is made
    to fit, by an estimate of the memory held.
    """
    temperatures = torch.logspace(0, float(np.log10(HIGHEST_TEMPERATURE)), max(count - 1, 1))[: count - 1]
    drawn = [torch.multinomial((logits / t).softmax(-1), 1, generator=generator).squeeze(-1) for t in temperatures]
    placements = torch.stack([logits.argmax(-1), *drawn]).numpy()
    shares = np.linspace(HIGHEST_FILL, LOWEST_FILL, count)
    preferred = logits.numpy().astype(np.float64)
    return np.stack([made_to_fit(p, preferred, held, share) for p, share in zip(placements, shares, strict=True)])


def made_to_fit(placement: Ints, preferred: Floats, held: HeldMemory, share: float) -> Ints:
    """(units,) the placement, if its held memory fits in a share of each device's; else repaired unit by unit.

    A unit whose device is full goes to the device with room that is preferred most, `preferred` being (units,
    devices); if none has room, to the one with most memory left.
    """
    if (held.on_devices(placement) <= held.limits * share).all():
        return placement
    room = Room(held, share)
    repaired = placement.copy()
    for unit, device in enumerate(placement):
        left = room.after(unit)
        if left[device] < 0:
            fitting = np.flatnonzero(left >= 0)
            repaired[unit] = fitting[preferred[unit, fitting].argmax()] if len(fitting) else left.argmax()
        room.take(unit, int(repaired[unit]))
    return repaired
