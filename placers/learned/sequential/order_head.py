"""The order head: how much more or less urgent each part of a unit is than the rule `longest_path` says.

It decides after the units are placed, for all parts at once. The priority of an op is minus the seconds of the longest
path from it, as under the rule, times e to the power of its part's correction. A new head corrects nothing: its orders
are the rule's, ties included. In training corrections are drawn from normal distributions around the head's, of one
width: a decision for each part, as the device is one for each unit. All this is our choice.

It learns last, when the rest of the policy has learned to place and stays as it is: what an order is worth shows among
samples of one placement, and is lost among samples of many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from graphs.op_graph import Floats, Ints
from placers.learned.batch import padded
from placers.learned.policy import Scores
from placers.learned.sequential.precedence import ORDER_FEATURES, Precedence

NOISE = 0.05  # standard deviation of a correction in training: urgency changes by 5%
MOST = 3.0  # a correction at most, so that urgency changes by a factor of at most 20


@dataclass(frozen=True, eq=False)
class PartBatch:
    """The parts of several problems' units; those of a problem whose order is not chosen are none."""

    precedences: tuple[Precedence | None, ...]
    unit: Tensor  # (problems, parts) that each belongs to, 0 where padded
    mask: Tensor  # (problems, parts) bool, False where padded

    @classmethod
    def of(cls, precedences: Sequence[Precedence | None]) -> PartBatch:
        """Stack any numbers of parts."""
        units = [np.zeros(0, np.int64) if each is None else each.parts.unit for each in precedences]
        return cls(tuple(precedences), *padded([torch.from_numpy(unit) for unit in units]))

    def features(self, devices: Tensor) -> Tensor:
        """(problems, samples, parts, features) of (problems, samples, units) devices; 0 where padded."""
        problems, samples, _ = devices.shape
        found = torch.zeros(problems, samples, self.mask.shape[1], len(ORDER_FEATURES))
        for i, precedence in enumerate(self.precedences):
            if precedence is not None:
                units = int(precedence.paths.unit.max()) + 1
                found[i, :, : len(precedence.parts)] = torch.from_numpy(
                    precedence.features(devices[i, :, :units].numpy())
                )
        return found

    def priorities(self, corrections: Tensor) -> list[Floats | None]:
        """(samples, ops) priorities of each problem, of (problems, samples, parts) corrections.

        None for a problem whose order is not chosen.
        """
        bounded = corrections.nan_to_num().double().clamp(-MOST, MOST).numpy()
        return [
            None if precedence is None else precedence.priorities(bounded[i, :, : len(precedence.parts)])
            for i, precedence in enumerate(self.precedences)
        ]


@dataclass(frozen=True, eq=False)
class Corrections:
    """What was decided of the order in several samples of several problems, and what the head saw."""

    values: Tensor  # (problems, samples, parts), NaN where nothing was decided; arbitrary where padded
    features: Tensor  # (problems, samples, parts, features), or (problems, 1, ...) where samples are of one placement

    @classmethod
    def undecided(cls, parts: PartBatch, samples: int) -> Corrections:
        """Those of samples whose order is the rule's."""
        problems, count = parts.mask.shape
        nothing = torch.full((problems, samples, count), torch.nan)
        return cls(nothing, torch.zeros(problems, samples, count, len(ORDER_FEATURES)))

    def cat(self, other: Corrections) -> Corrections:
        """The samples of both."""
        return Corrections(torch.cat([self.values, other.values], 1), torch.cat([self.features, other.features], 1))


class OrderHead(nn.Module):
    """A small network from the state of a unit, and what is known of its part under the placement, to a correction."""

    def __init__(self, width: int) -> None:
        """`width` is that of the units' states."""
        super().__init__()
        self.state = nn.Linear(width, width)
        self.first = nn.Linear(len(ORDER_FEATURES), width, bias=False)
        self.second = nn.Linear(width, (width + 1) // 2)
        self.out = nn.Linear((width + 1) // 2, 1, bias=False)
        self.skip = nn.Linear(len(ORDER_FEATURES), 1, bias=False)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.skip.weight)

    def forward(self, states: Tensor, parts: PartBatch, features: Tensor) -> Tensor:
        """(problems, samples, parts) corrections of states (problems, units, width) and the parts' features."""
        of_parts = self.state(states).gather(1, parts.unit[..., None].expand(-1, -1, states.shape[2]))
        hidden = torch.relu(of_parts[:, None] + self.first(features))
        corrections: Tensor = self.out(torch.relu(self.second(hidden))) + self.skip(features)
        return corrections.squeeze(-1)

    @torch.no_grad()
    def draw(
        self, states: Tensor, parts: PartBatch, devices: Tensor, samples: int, generator: torch.Generator
    ) -> Corrections:
        """Corrections for samples that are placed, (problems, samples, units), or `samples` for one placement."""
        features = parts.features(devices)
        likely = self(states, parts, features)
        noise = torch.randn((len(likely), samples, likely.shape[2]), generator=generator)
        return Corrections(likely + NOISE * noise, features)

    def log_probability(self, states: Tensor, parts: PartBatch, drawn: Corrections) -> Tensor:
        """(problems, samples, parts) up to a constant; 0 where padded, or where nothing was decided."""
        away = (drawn.values.nan_to_num() - self(states, parts, drawn.features)) / NOISE
        return torch.where(drawn.values.isnan() | ~parts.mask[:, None], 0.0, -away.square() / 2)

    def scores(self, states: Tensor, parts: PartBatch, drawn: Corrections) -> Scores:
        """How it rates corrections, where nothing but the order was decided."""
        return Scores(self.log_probability(states, parts, drawn), torch.zeros(parts.mask.shape), parts.mask)

    @torch.no_grad()
    def likely_priorities(self, states: Tensor, precedence: Precedence, placements: Ints) -> Floats:
        """(placements, ops) the order of each of (placements, units) placements of one problem, without noise."""
        parts = PartBatch.of([precedence])
        corrections = self(states, parts, parts.features(torch.from_numpy(placements)[None]))
        (priorities,) = parts.priorities(corrections)
        assert priorities is not None
        return priorities
