"""SequentialPolicy: units are placed one after another, each device scored by what it would mean to put the unit there.

The problem is encoded once, as in GDP, and the decoder is small: what it needs to know of the placement so far is in
the features of the devices (`decoder_features`). They are relative, so one policy serves all graphs and clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from envs.costs.costs import Costs
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.learned.batch import Batch
from placers.learned.features import Observation, observe
from placers.learned.finite import check_outputs
from placers.learned.gdp.policy import Scores
from placers.learned.sequential.decoder_features import FEATURES, Feature
from placers.learned.sequential.encoder import Encoder
from placers.learned.sequential.layout import Layout, renamed_by_use
from placers.learned.sequential.rollout import roll_out
from placers.learned.sequential.state import GIVEN, GREEDY, SAMPLED, Rollouts, RolloutState, Sampling, ScoreLayers
from placers.learned.shapes import Size, shape_of

NAME = "sequential"
EARLIER_PASSES = 3  # at most, in training
SHARES_OF_PASSES = (0.5, 0.25, 0.15, 0.1)  # of the problems that are met after so many earlier passes, from none
EARLIEST_FINISH_FIRST = -2.0  # initial weight of a device's finish: a new policy leans to where a unit ends first
FORBIDDEN = -1e9  # logit of a device that is masked; infinity would give NaN where all are


class SequentialShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a policy is made of; the knobs of a spec, "sequential:width=32"."""

    width: Size = 64  # of the encoder
    sage_layers: Size = 2
    transformer_layers: Size = 1
    heads: Size = 4  # of the Transformer's attention, which divide the width
    hidden: Size = 64  # width of the decoder
    order: Literal["longest_path", "topological"] = "longest_path"  # in which units are placed: what is left, from most

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is no multiple of {self.heads} heads")


@dataclass(frozen=True, eq=False)
class SequentialBatch:
    """Problems side by side: what the encoder sees, and what the roll-outs run on."""

    encoded: Batch
    layouts: tuple[Layout, ...]
    latest: list[tuple[Tensor, Trace]] = field(default_factory=list)  # the placements played last, and their trace

    @classmethod
    def of(cls, observations: Sequence[Observation], layouts: Sequence[Layout]) -> SequentialBatch:
        """A batch of problems of any sizes."""
        return cls(Batch.of(observations), tuple(layouts))

    @property
    def unit_mask(self) -> Tensor:
        """(problems, 2 * units) bool: what of an action is a decision, and not padded."""
        units = self.encoded.unit_mask
        return torch.cat([units, torch.zeros_like(units)], 1)


@dataclass(frozen=True, eq=False)
class Trace:
    """What the decoder saw while it placed, for every (problem, sample, unit) with more than one device to choose."""

    rows: Tensor  # (rows,) allowed devices: index into the flattened (problems, samples, units, devices)
    states: Tensor  # (rows,) index into the flattened (problems, units)
    features: Tensor  # (rows, features)
    allowed: Tensor  # (problems, samples, units, devices) bool
    log_probability: Tensor  # (problems, samples, units) as the roll-out computed it, under the policy of its time


class SequentialPolicy(nn.Module):
    """A distribution over placements, unit by unit in the order of its shape."""

    def __init__(self, shape: SequentialShape) -> None:
        super().__init__()
        self.shape = shape
        hidden = shape.hidden
        self.encoder = Encoder(shape.width, shape.sage_layers, shape.transformer_layers, shape.heads)
        self.state = nn.Linear(shape.width, hidden)
        self.first = nn.Linear(len(FEATURES), hidden, bias=False)
        self.second = nn.Linear(hidden, (hidden + 1) // 2)
        self.out = nn.Linear((hidden + 1) // 2, 1, bias=False)
        self.skip = nn.Linear(len(FEATURES), 1, bias=False)
        nn.init.normal_(self.out.weight, std=0.05)
        nn.init.zeros_(self.skip.weight)
        with torch.no_grad():
            self.skip.weight[0, Feature.FINISH] = EARLIEST_FINISH_FIRST

    def view(self, problem: Problem, costs: Costs) -> tuple[Observation, Layout]:
        """What the policy sees of a problem."""
        return observe(problem, costs), Layout.of(problem, costs, self.shape.order)

    def stack(self, views: Sequence[tuple[Observation, Layout]]) -> SequentialBatch:
        """Several views as a batch."""
        return SequentialBatch.of([seen for seen, _ in views], [layout for _, layout in views])

    def forward(self, batch: Batch) -> Tensor:
        """The state of every unit, (problems, units, hidden)."""
        states: Tensor = self.state(self.encoder(batch))
        return states

    @torch.no_grad()
    def act(self, batch: SequentialBatch, samples: int, generator: torch.Generator) -> Tensor:
        """Draw actions, (problems, samples, 2 * units): devices, then those of the pass before, or -1 in a first pass.

        Each problem is met in a first pass, or after one or more, which all its samples then share. What was seen on
        the way is kept for `score`.
        """
        states = self(batch.encoded)
        shape = len(batch.layouts), samples, states.shape[1]
        uniform = torch.rand(shape, generator=generator)
        earlier = (
            torch.rand((EARLIER_PASSES, len(batch.layouts), states.shape[1]), generator=generator).double().numpy()
        )
        passes = torch.multinomial(torch.tensor(SHARES_OF_PASSES), len(batch.layouts), True, generator=generator)
        actions = torch.full((*shape[:2], 2 * shape[2]), -1)
        for i, layout in enumerate(batch.layouts):
            units = len(layout.order)
            before = np.full((1, units), -1)
            for numbers in earlier[: int(passes[i]), i]:
                before = self._draw(layout, states[i], Sampling.of(SAMPLED, numbers[None, :units], before))
            actions[i, :, shape[2] : shape[2] + units] = torch.from_numpy(before)
        self._play(batch, states, SAMPLED, uniform, actions)
        return actions

    def actions_of(self, batch: SequentialBatch, placements: Sequence[Ints]) -> Tensor:
        """(problems, 1, 2 * units) the actions of a first pass that lead to placements, (units,) each.

        Equal devices are renamed such that of those still empty the first is taken, as the decoder must.
        """
        units = batch.encoded.unit_mask.shape[1]
        actions = torch.full((len(placements), 1, 2 * units), -1)
        for i, (layout, placement) in enumerate(zip(batch.layouts, placements, strict=True)):
            renamed = torch.from_numpy(renamed_by_use(layout, placement))
            actions[i, 0, : len(renamed)] = renamed
        actions[:, :, :units].clamp_(min=0)
        return actions

    def score(self, batch: SequentialBatch, placements: Tensor) -> Scores:
        """Log-probabilities and entropy of actions (problems, samples, 2 * units), differentiable.

        The log-probability of a device that the decoder would not allow is as good as minus infinity.
        """
        encoded = self(batch.encoded)
        trace = self.trace(batch, placements)
        states = encoded.flatten(0, 1)
        hidden = torch.relu(states.index_select(0, trace.states) + self.first(trace.features))
        rated = self.out(torch.relu(self.second(hidden))) + self.skip(trace.features)
        logits = torch.where(trace.allowed, 0.0, FORBIDDEN).flatten().index_put((trace.rows,), rated.squeeze(-1))
        log_probabilities = logits.view(trace.allowed.shape).log_softmax(-1)
        devices = placements[..., : encoded.shape[1]].clamp_min(0)
        chosen = log_probabilities.gather(-1, devices[..., None]).squeeze(-1)
        entropy = -(log_probabilities.exp() * log_probabilities).sum(-1).mean(1)
        mask = batch.unit_mask
        return Scores(torch.cat([chosen, 0 * chosen], 2) * mask[:, None], torch.cat([entropy, 0 * entropy], 1) * mask)

    @torch.no_grad()
    def trace(self, batch: SequentialBatch, placements: Tensor) -> Trace:
        """What the decoder sees while it takes the actions (problems, samples, 2 * units).

        That does not depend on the policy, so the latest trace of a batch serves all epochs of an update.
        """
        if not batch.latest or batch.latest[0][0] is not placements:
            states = self(batch.encoded)
            self._play(batch, states, GIVEN, torch.zeros((*placements.shape[:2], states.shape[1])), placements)
        return batch.latest[0][1]

    @torch.no_grad()
    def candidates(
        self, batch: SequentialBatch, temperatures: Floats, shares: Floats, seed: int, *, passes: int = 1
    ) -> Ints:
        """(passes, choices, units) placements of a single problem after each pass: the greedy one, then samples.

        `temperatures` and `shares`, (choices,), say how bold each of them is, and how much of the devices' memory it
        may fill.
        """
        layout, states, count = batch.layouts[0], self(batch.encoded)[0], len(shares)
        rng = np.random.default_rng(seed)
        mode = np.where(np.arange(count) == 0, GREEDY, SAMPLED)
        placements = [np.full((count, len(layout.order)), -1)]
        for _ in range(passes):
            uniform = rng.random((count, len(layout.order)))
            sampling = Sampling(mode, uniform, temperatures, shares, placements[-1])
            placements.append(self._draw(layout, states, sampling))
        return np.stack(placements[1:])

    def _draw(self, layout: Layout, states: Tensor, sampling: Sampling) -> Ints:
        """(choices, units) placements of one problem."""
        rollouts = Rollouts.room_for(layout, len(sampling.mode), keep=False)
        self._run(layout, states, sampling, rollouts)
        return rollouts.placements

    def _play(self, batch: SequentialBatch, states: Tensor, mode: int, uniform: Tensor, actions: Tensor) -> None:
        """Roll out all samples of all problems, (problems, samples, units); writes the devices, keeps the trace."""
        width = states.shape[1]
        played = []
        for i, layout in enumerate(batch.layouts):
            units = len(layout.order)
            rollouts = Rollouts.room_for(layout, actions.shape[1], keep=True)
            rollouts.placements[:] = actions[i, :, :units].numpy()
            before = np.ascontiguousarray(actions[i, :, width : width + units].numpy())
            self._run(layout, states[i], Sampling.of(mode, uniform[i].double().numpy(), before), rollouts)
            actions[i, :, :units] = torch.from_numpy(rollouts.placements)
            played.append(rollouts)
        batch.latest[:] = [(actions, _trace(played, batch))]

    def _run(self, layout: Layout, states: Tensor, sampling: Sampling, rollouts: Rollouts) -> None:
        layers = ScoreLayers(
            np.ascontiguousarray(states[: len(layout.order)].numpy()),
            np.ascontiguousarray(self.first.weight.T.numpy()),
            np.ascontiguousarray(self.second.weight.T.numpy()),
            self.second.bias.numpy(),
            self.out.weight[0].numpy(),
            self.skip.weight[0].numpy(),
        )
        roll_out(layout, layers, sampling, RolloutState.room_for(layout, layers), rollouts)
        check_outputs(torch.from_numpy(rollouts.log_probability))


def new_sequential(network: str, seed: int) -> SequentialPolicy:
    """An untrained policy of the shape in a spec; same seed, same weights. Raises InputError as `shape_of` does."""
    shape = shape_of(network, NAME, SequentialShape)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return SequentialPolicy(shape)


def _trace(played: Sequence[Rollouts], batch: SequentialBatch) -> Trace:
    """Records of problems of different sizes in one, without the rows that leave no choice."""
    problems, units = batch.encoded.unit_mask.shape
    samples = len(played[0].placements)
    devices = batch.encoded.device_mask.shape[1]
    allowed = np.zeros((problems, samples, units, devices), np.bool_)
    log_probability = np.zeros((problems, samples, units))
    rows, states, features = [], [], []
    for i, rollouts in enumerate(played):
        _, own_units, own_devices = rollouts.allowed.shape
        allowed[i, :, :own_units, :own_devices] = rollouts.allowed
        log_probability[i, :, :own_units] = rollouts.log_probability
        open_ = rollouts.allowed & (rollouts.allowed.sum(axis=2, keepdims=True) > 1)
        sample, unit, device = np.nonzero(open_)
        rows.append(np.ravel_multi_index((np.full(len(unit), i), sample, unit, device), allowed.shape))
        states.append(i * units + unit)
        features.append(rollouts.features[open_])
    return Trace(
        torch.from_numpy(np.concatenate(rows)),
        torch.from_numpy(np.concatenate(states)),
        torch.from_numpy(np.concatenate(features)),
        torch.from_numpy(allowed),
        torch.from_numpy(log_probability),
    )
