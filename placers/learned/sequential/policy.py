"""SequentialPolicy: units are placed one after another, each device scored by what it would mean to put the unit there.

The problem is encoded once, as in GDP, and the decoder is small: what it needs to know of the placement so far is in
the features of the devices (`sequential.rollout`). They are relative, so one policy serves all graphs and clusters.
A policy with `orders` then also decides in which order devices run what is ready (`sequential.order_head`).
A policy with `one_device` first decides whether to place unit by unit at all (`sequential.one_device`).
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import msgspec
import numpy as np
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from envs.costs.costs import Costs, costs_of
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.contract.abilities import Decisions
from placers.contract.current_plan import CurrentPlan
from placers.learned.batch import Batch
from placers.learned.features import Observation, observe
from placers.learned.finite import check_outputs
from placers.learned.policy import Policy, Scores, UnitDevices
from placers.learned.sequential.action import SequentialAction, SequentialBatch, SequentialView
from placers.learned.sequential.decoder_features import FEATURES, Feature
from placers.learned.sequential.encoder import UnitEncoder
from placers.learned.sequential.freeing import Freed, UnitChoice, free_of_plans, kept_of
from placers.learned.sequential.layout import RolloutLayout, renamed_by_use
from placers.learned.sequential.one_device import OneDeviceChoice, OneDeviceHead, one_device, with_one_device
from placers.learned.sequential.order_head import Corrections, OrderHead, PartBatch
from placers.learned.sequential.precedence import ORDER_FEATURES, Precedence
from placers.learned.sequential.rating import RatingWeights, rated
from placers.learned.sequential.repairs import UnitRepairer
from placers.learned.sequential.rollout import roll_out
from placers.learned.sequential.runtime_features import RUNTIME_FEATURES, runtime_features
from placers.learned.sequential.shape import SequentialShape
from placers.learned.sequential.state import (
    GIVEN,
    GREEDY,
    IMPOSSIBLE,
    SAMPLED,
    Rollouts,
    RolloutState,
    Sampling,
    ScoreLayers,
)
from placers.learned.sequential.trace import trace_of
from placers.learned.settings import Settings, brief_ppo

EARLIER_PASSES = 3  # at most, in training
SHARES_OF_PASSES = (0.5, 0.25, 0.15, 0.1)  # of the problems that are met after 0, 1, 2 and 3 earlier passes
EARLIEST_FINISH_FIRST = -2.0  # initial weight of a device's finish: a new policy leans to where a unit ends first
PASSES = 2  # over all units when it places; the second sees the first, and a third changed nothing
HIGHEST_TEMPERATURE = 4.0  # of the last sample: a trained policy is sure of itself, and its samples hardly differ


class SequentialPolicy(Policy[SequentialView, SequentialBatch, SequentialAction]):
    """A distribution over placements, unit by unit in the order of its shape."""

    kind: ClassVar[str] = "sequential"
    shape_type: ClassVar[type[msgspec.Struct]] = SequentialShape
    decoder_features: ClassVar[tuple[str, ...]] = FEATURES
    feature_weights: ClassVar[tuple[str, ...]] = ("first.weight", "skip.weight")

    def __init__(self, shape: SequentialShape) -> None:
        super().__init__()
        self.shape = shape
        hidden = shape.hidden
        self._knows_runtime = shape.order == "runtime"
        further = len(RUNTIME_FEATURES) if self._knows_runtime else 0
        self.encoder = UnitEncoder(shape.width, shape.sage_layers, shape.transformer_layers, shape.heads, further)
        self.state = nn.Linear(shape.width, hidden)
        self.first = nn.Linear(len(FEATURES), hidden, bias=False)
        self.second = nn.Linear(hidden, (hidden + 1) // 2)
        self.out = nn.Linear((hidden + 1) // 2, 1, bias=False)
        self.skip = nn.Linear(len(FEATURES), 1, bias=False)
        nn.init.normal_(self.out.weight, std=0.05)
        nn.init.zeros_(self.skip.weight)
        with torch.no_grad():
            self.skip.weight[0, Feature.FINISH] = EARLIEST_FINISH_FIRST
        self.one_device = OneDeviceHead(hidden, knows_runtime=self._knows_runtime) if shape.one_device else None
        self.choice = UnitChoice(hidden) if shape.repairs else None
        self.order_head = OrderHead(hidden) if shape.orders else None  # the last, so that it changes no other weight
        self.order_features = ORDER_FEATURES if shape.orders else ()
        self.learns: Decisions = "all"

    @property
    def on_card(self) -> UnitEncoder:
        """As `SavedPolicy.on_card`."""
        return self.encoder

    def learn(self, what: Decisions) -> None:
        """As `Orders.learn`.

        What is not learned stays as it is. While it learns devices alone, ops run by the problem's rule.
        """
        if self.order_head is None:
            raise InputError("only a network with orders=true learns an order; set it, or set order.updates to 0")
        self.learns = what
        for name, weight in self.named_parameters():
            weight.requires_grad_(what == "all" or name.startswith("order_head.") == (what == "order"))

    @property
    def _orders(self) -> bool:
        """Whether it decides the order, too."""
        return self.order_head is not None and self.learns != "devices"

    def view(self, problem: Problem) -> SequentialView:
        """What the policy sees of a problem."""
        costs = costs_of(problem)
        precedence = Precedence.of(problem, costs) if self._orders else None
        layout = self._layout(problem, costs)
        return self._observe(problem, costs, layout), layout, precedence

    def _layout(self, problem: Problem, costs: Costs) -> RolloutLayout:
        return RolloutLayout.of(problem, costs, self.shape.order, live_outputs=self.shape.live_outputs)

    def _observe(self, problem: Problem, costs: Costs, layout: RolloutLayout | None = None) -> Observation:
        """What the encoder sees."""
        seen = observe(problem, costs)
        if not self._knows_runtime:
            return seen
        further = runtime_features(problem, costs, self._layout(problem, costs) if layout is None else layout)
        return dataclasses.replace(seen, units=np.concatenate([seen.units, further], axis=1))

    def stack(self, views: Sequence[SequentialView]) -> SequentialBatch:
        """Several views as a batch."""
        seen, layouts, precedences = zip(*views, strict=True)
        return SequentialBatch(Batch.of(seen), layouts, PartBatch.of(precedences))

    def forward(self, batch: Batch) -> Tensor:
        """The state of every unit, (problems, units, hidden)."""
        states: Tensor = self.state(self.encoder(batch))
        return states

    def act(self, batch: SequentialBatch, samples: int, generator: torch.Generator) -> SequentialAction:
        """Draw devices. Each problem is met in a first pass, or after one or more, which all its samples then share.

        Where the order alone is learned, samples are orders of one drawn placement.
        """
        return self.repair(batch, samples, generator, [None] * len(batch.layouts))

    @torch.no_grad()
    def repair(
        self, batch: SequentialBatch, samples: int, generator: torch.Generator, plans: Sequence[CurrentPlan | None]
    ) -> SequentialAction:
        """As `Repairs.repair`; each sample frees units of its own."""
        states = self(batch.encoded)
        placements = 1 if self.learns == "order" else samples
        action = self._placed(batch, states, placements, generator, plans)
        if self.order_head is None or not self._orders:
            return action
        corrections = self.order_head.draw(states, batch.parts, action.devices, samples, generator)
        devices = action.devices.repeat(1, samples // placements, 1)
        return dataclasses.replace(action, devices=devices, corrections=corrections)

    def _placed(
        self, batch: SequentialBatch, states: Tensor, samples: int, generator: torch.Generator,
        plans: Sequence[CurrentPlan | None],
    ) -> SequentialAction:  # fmt: skip
        """Draw devices, and no order yet."""
        shape = len(batch.layouts), samples, states.shape[1]
        uniform = torch.rand(shape, generator=generator)
        numbers = (
            torch.rand((EARLIER_PASSES, len(batch.layouts), states.shape[1]), generator=generator).double().numpy()
        )
        passes = torch.multinomial(torch.tensor(SHARES_OF_PASSES), len(batch.layouts), True, generator=generator)
        earlier = torch.full(shape, -1)
        for i, layout in enumerate(batch.layouts):
            units = len(layout.order)
            before = np.full((1, units), -1)
            for of_pass in numbers[: int(passes[i]), i]:
                before = self._draw(layout, states[i], Sampling.of(SAMPLED, of_pass[None, :units], before))
            earlier[i, :, :units] = torch.from_numpy(before)
        freed = free_of_plans(self.choice, states, batch.layouts, plans, samples, generator)
        for i, plan in enumerate(plans):
            if plan is not None:
                earlier[i, :, : len(plan.placement)] = torch.from_numpy(plan.placement)
        choice = self.one_device.tried(batch.layouts, samples, generator) if self.one_device else None
        if choice is not None and freed is not None:
            choice = choice.but_for(freed.repaired)
        return self._roll_out(batch, states, SAMPLED, uniform, torch.full(shape, -1), earlier, choice, freed)

    @torch.no_grad()
    def repairer(self, problem: Problem, threads: int) -> UnitRepairer:
        """As `Repairs.repairer`. Raises NotFiniteError for a diverged policy."""
        batch = self.stack([self.view(problem)])
        states, layout = self(batch.encoded)[0], batch.layouts[0]
        boldness = HIGHEST_TEMPERATURE, *self.shape.fills
        return UnitRepairer(problem, layout, self.choice, states, self.score_layers(layout, states), boldness, threads)

    def drawn_orders(self, batch: SequentialBatch, action: SequentialAction) -> list[Floats | None]:
        """As `Policy.drawn_orders`."""
        if action.corrections is None:
            return [None] * len(batch.layouts)
        return batch.parts.priorities(action.corrections.values)

    @torch.no_grad()
    def likely_orders(self, problem: Problem, placements: Ints) -> Floats | None:
        """As `LearnedPolicy.likely_orders`."""
        costs = costs_of(problem)
        precedence = Precedence.of(problem, costs) if self._orders else None
        if self.order_head is None or precedence is None:
            return None
        states = self(Batch.of([self._observe(problem, costs)]))
        return self.order_head.likely_priorities(states, precedence, placements)

    def actions_of(self, batch: SequentialBatch, placements: Sequence[Ints]) -> SequentialAction:
        """The actions of a first pass that lead to placements, (units,) each.

        Equal devices are renamed: of those still empty the first is taken, as the decoder must.
        """
        renamed = [
            renamed_by_use(layout, placement) for layout, placement in zip(batch.layouts, placements, strict=True)
        ]
        devices = UnitDevices.of(renamed, batch.encoded.unit_mask.shape[1]).devices
        choice = self.one_device.of_placements(batch.layouts, renamed) if self.one_device else None
        return self.follow(batch, devices, torch.full_like(devices, -1), choice)

    @torch.no_grad()
    def follow(
        self, batch: SequentialBatch, devices: Tensor, earlier: Tensor, choice: OneDeviceChoice | None = None
    ) -> SequentialAction:
        """The action that is these devices after an earlier pass, (problems, samples, units) both."""
        uniform = torch.zeros(devices.shape)
        return self._roll_out(batch, self(batch.encoded), GIVEN, uniform, devices, earlier, choice)

    def score(self, batch: SequentialBatch, action: SequentialAction) -> Scores:
        """Log-probabilities and entropy of actions, differentiable.

        The log-probability of a device that the decoder would not allow is as good as minus infinity. There are
        2 * units decisions; the latter half, those of the earlier pass, is masked: sums over all are rounded
        as they were when policies were trained with them. Then come those of the order, if it is chosen.
        """
        encoded = self(batch.encoded)
        if self.order_head is not None and action.corrections is not None and self.learns == "order":
            return self.order_head.scores(encoded, batch.parts, action.corrections)
        second, of_out = self.second, (self.out.weight[0], self.skip.weight[0])
        weights = RatingWeights(self.first.weight, second.weight, second.bias, *of_out)
        chosen, entropy = rated(encoded.flatten(0, 1), action.trace, action.devices, weights)
        units = batch.encoded.unit_mask
        first, spread, counted = 0 * chosen, 0 * entropy, torch.zeros_like(units)
        if self.choice is not None and action.freed is not None:
            seed, of_seed = self.choice.decisions(encoded, action.freed, units)
            first = torch.cat([seed[..., None], first[..., 1:]], 2)
            spread, counted[:, 0] = torch.cat([of_seed[:, None], spread[:, 1:]], 1), action.freed.repaired
        mask = torch.cat([units, counted], 1)
        scores = Scores(torch.cat([chosen, first], 2) * mask[:, None], torch.cat([entropy, spread], 1) * mask, mask)
        if self.one_device is not None and action.one_device is not None:
            logits = self.one_device(encoded, units, batch.layouts)
            scores = self.one_device.with_decision(scores, logits, action.one_device)
        if self.order_head is None or action.corrections is None:
            return scores
        of_order = self.order_head.log_probability(encoded, batch.parts, action.corrections)
        return scores.with_order(of_order, batch.parts.mask)

    @torch.no_grad()
    def candidates(self, problem: Problem, count: int, seed: int) -> Ints:
        """(count, units) the greedy placement, then ever bolder samples, all after `PASSES` passes.

        Everything on one device comes first if the policy says so.
        """
        batch = self.stack([self.view(problem)])
        states = self(batch.encoded)
        device = self.says_one_device(batch, states)
        first: Ints = np.full((int(device >= 0), len(problem.units)), device)
        left = count - len(first)
        return np.concatenate([first, self.drawn(batch, left, seed, states=states)]) if left else first

    def drawn(
        self, batch: SequentialBatch, count: int, seed: int, before: Ints | None = None, states: Tensor | None = None
    ) -> Ints:
        """(count, units) of a single problem, unit by unit: the greedy placement, then ever bolder samples.

        With placements that are known `before`, (count, units), each is a single pass over one of these.
        """
        temperatures = np.linspace(1.0, HIGHEST_TEMPERATURE, count)
        shares = self.shape.shares(count)
        passes = PASSES if before is None else 1
        placements: Ints = self.decode(batch, temperatures, shares, seed, passes, before, states)[-1]
        return placements

    @torch.no_grad()
    def says_one_device(self, batch: SequentialBatch, states: Tensor | None = None) -> int:
        """The device on which it would rather have everything of a single problem; -1 to place unit by unit."""
        device = one_device(batch.layouts[0])
        if self.one_device is None or device < 0:
            return -1
        encoded = self(batch.encoded) if states is None else states
        logits = self.one_device(encoded, batch.encoded.unit_mask, batch.layouts)
        return device if float(logits[0]) > 0 else -1

    @torch.no_grad()
    def passes_over(self, batch: SequentialBatch, placements: Ints) -> Ints:
        """(placements, units) greedy placements of a single problem, with these as the pass before."""
        states, count = self(batch.encoded)[0], len(placements)
        nothing, shares = np.zeros(placements.shape), np.full(count, self.shape.fills[0])
        sampling = Sampling(np.full(count, GREEDY), nothing, np.ones(count), shares, np.ascontiguousarray(placements))
        return self._draw(batch.layouts[0], states, sampling)

    @torch.no_grad()
    def likelihoods(self, batch: SequentialBatch, placements: Ints) -> Floats:
        """(placements,) log-probabilities of placements of a single problem; as good as none where one is masked.

        One after another: what the decoder sees of thousands of units takes much memory.
        """
        layout, states, found = batch.layouts[0], self(batch.encoded)[0], []
        for placement in placements:
            rollouts = Rollouts.room_for(layout, 1, keep=True)
            rollouts.placements[0] = renamed_by_use(layout, placement)
            sampling = Sampling.of(GIVEN, np.zeros((1, len(placement))), np.full((1, len(placement)), -1))
            self._run(layout, states, sampling, rollouts)
            could = rollouts.allowed[0, np.arange(len(placement)), rollouts.placements[0]]
            found.append(np.where(could, rollouts.log_probability[0], IMPOSSIBLE).sum())
        if self.one_device is None:
            return np.array(found)
        logit = self.one_device(self(batch.encoded), batch.encoded.unit_mask, batch.layouts)
        return with_one_device(layout, float(logit[0]), placements, np.array(found))

    def fine_tuning(self, problem: Problem, simulations: int) -> Settings:  # noqa: ARG002 - for all problems alike
        """Bold: a trained decoder is nearly certain everywhere, and would otherwise try the same placement again."""
        ppo = brief_ppo(simulations)
        return Settings(
            ppo=replace(ppo, learning_rate=1e-3, final_learning_rate=1e-3, entropy=0.06, final_entropy=0.02)
        )

    @torch.no_grad()
    def decode(
        self, batch: SequentialBatch, temperatures: Floats, shares: Floats, seed: int, passes: int = 1,
        before: Ints | None = None, states: Tensor | None = None,
    ) -> Ints:  # fmt: skip
        """(passes, choices, units) placements of a single problem after each pass: the greedy one, then samples.

        `temperatures` and `shares`, (choices,), say how bold each of them is, and how much of the devices' memory it
        may fill. The first pass is over placements that are known `before`, (choices, units), if there are some.
        `states` are what `forward` says, if it was asked before.
        """
        layout, count = batch.layouts[0], len(shares)
        states = (self(batch.encoded) if states is None else states)[0]
        rng = np.random.default_rng(seed)
        mode = np.where(np.arange(count) == 0, GREEDY, SAMPLED)
        placements = [np.full((count, len(layout.order)), -1) if before is None else np.ascontiguousarray(before)]
        for _ in range(passes):
            uniform = rng.random((count, len(layout.order)))
            sampling = Sampling(mode, uniform, temperatures, shares, placements[-1])
            placements.append(self._draw(layout, states, sampling))
        return np.stack(placements[1:])

    def _draw(self, layout: RolloutLayout, states: Tensor, sampling: Sampling) -> Ints:
        """(choices, units) placements of one problem."""
        rollouts = Rollouts.room_for(layout, len(sampling.mode), keep=False)
        self._run(layout, states, sampling, rollouts)
        return rollouts.placements

    def _roll_out(
        self, batch: SequentialBatch, states: Tensor, mode: int, uniform: Tensor, devices: Tensor, earlier: Tensor,
        choice: OneDeviceChoice | None,
        freed: Freed | None = None,
    ) -> SequentialAction:  # fmt: skip
        """Roll out all samples of all problems, (problems, samples, units); devices are followed if they are GIVEN.

        Of samples that are on one device no unit was a choice.
        """
        chosen, done = devices.clone(), []
        for i, layout in enumerate(batch.layouts):
            units = len(layout.order)
            rollouts = Rollouts.room_for(layout, devices.shape[1], keep=True)
            rollouts.placements[:] = devices[i, :, :units].numpy()
            before = np.ascontiguousarray(earlier[i, :, :units].numpy())
            kept = kept_of(freed, i, units)
            self._run(layout, states[i], Sampling.of(mode, uniform[i].double().numpy(), before, kept), rollouts)
            if choice is not None:
                rollouts.put(choice.taken[i].numpy(), one_device(layout))
            chosen[i, :, :units] = torch.from_numpy(rollouts.placements)
            done.append(rollouts)
        undecided = Corrections.undecided(batch.parts, devices.shape[1]) if self._orders else None
        return SequentialAction(chosen, earlier, trace_of(done, batch.encoded), undecided, choice, freed)

    def _run(self, layout: RolloutLayout, states: Tensor, sampling: Sampling, rollouts: Rollouts) -> None:
        layers = self.score_layers(layout, states)
        roll_out(layout, layers, sampling, RolloutState.room_for(layout, layers), rollouts)
        check_outputs(torch.from_numpy(rollouts.log_probability))

    @torch.no_grad()
    def score_layers(self, layout: RolloutLayout, states: Tensor) -> ScoreLayers:
        """What roll-outs of a problem score devices with, by (units or more, hidden) states of its units."""
        return ScoreLayers(
            states[: len(layout.order)].contiguous().numpy(),
            self.first.weight.T.contiguous().numpy(),
            self.second.weight.T.contiguous().numpy(),
            self.second.bias.numpy(),
            self.out.weight[0].numpy(),
            self.skip.weight[0].numpy(),
        )
