"""What a policy is: a torch module that chooses devices. Each has a view, a batch and an action of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Self, TypeVar

import msgspec
import torch
from torch import Tensor, nn

from envs.prepared_problem import PreparedProblem, outcomes_of
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.learned.settings import Settings
from placers.learned.shapes import shape_of, weights_drawn_from

View = TypeVar("View")
Batch = TypeVar("Batch")


class SavedPolicy(nn.Module, ABC):
    """What all policies have in common: they are kept in a folder (`placers.learned.policy_file`), and trained."""

    kind: ClassVar[str]  # the folder it comes from: "gdp"
    trainer: ClassVar[str]  # what trains it: "ppo"
    shape_type: ClassVar[type[msgspec.Struct]]  # of the only argument of its constructor, the knobs of a spec
    any_cluster: ClassVar[bool] = True  # or a policy is for one number of devices, its shape's `devices`
    decoder_features: ClassVar[tuple[str, ...]] = ()  # what it reads of a decision, if that is more than an observation
    order_features: tuple[str, ...] = ()  # what it reads to choose an order, if it does
    feature_weights: ClassVar[tuple[str, ...]] = ()  # the weights with a column for each of them, if some may be added

    @classmethod
    def new(cls, network: str, seed: int) -> Self:
        """An untrained policy of the shape in a spec; same seed, same weights. Raises InputError as `shape_of` does."""
        with weights_drawn_from(seed):
            return cls(shape_of(network, cls.kind, cls.shape_type))

    @property
    def on_card(self) -> nn.Module | None:
        """The part of it that can be computed on a card; None if there is none."""
        return None

    @abstractmethod
    def greedy(self, known: PreparedProblem) -> tuple[float, bool]:
        """Step seconds of its most likely plan of a problem over the lower bound, and whether that fits."""

    @abstractmethod
    def fine_tuning(self, problem: Problem, simulations: int) -> Settings:
        """The settings with which it is fine-tuned on one problem within a number of simulations."""


class LearnedPolicy(SavedPolicy):
    """What all policies have in common that place op by op."""

    @abstractmethod
    def candidates(self, problem: Problem, count: int, seed: int) -> Ints:
        """At most `count` placements worth simulating, (count, units); the first is the most likely one.

        Raises InputError if the policy is not for such a problem.
        """

    def likely_orders(self, problem: Problem, placements: Ints) -> Floats | None:  # noqa: ARG002 - most have none
        """(placements, ops) in which order the policy would run (placements, units); None if by the problem's rule."""
        return None

    @torch.no_grad()
    def greedy(self, known: PreparedProblem) -> tuple[float, bool]:
        """As `SavedPolicy.greedy`, of its most likely placement."""
        placements = known.problem.made_allowed(self.candidates(known.problem, 1, 0))
        outcome = outcomes_of(known.evaluator, placements, self.likely_orders(known.problem, placements)).of(0)
        return outcome.step_seconds / known.lower_bound, outcome.fits


@dataclass(frozen=True, eq=False)
class UnitDevices:
    """What was decided in several samples of several problems; a policy that draws more than devices adds fields."""

    devices: Tensor  # (problems, samples, units); arbitrary at padded units

    @classmethod
    def of(cls, placements: Sequence[Ints], units: int) -> UnitDevices:
        """One sample of each problem, from placements (their own units,); 0 where padded."""
        devices = torch.zeros(len(placements), 1, units, dtype=torch.int64)
        for row, placement in zip(devices[:, 0], placements, strict=True):
            row[: len(placement)] = torch.from_numpy(placement)
        return UnitDevices(devices)

    def cat(self, other: Self) -> Self:
        """The samples of both, those of the other after these."""
        return type(self)(*(torch.cat(pair, 1) for pair in zip(vars(self).values(), vars(other).values(), strict=True)))


A = TypeVar("A", bound=UnitDevices)


@dataclass(frozen=True, eq=False)
class Scores:
    """How a policy rates actions, decision by decision; most policies decide once for each unit."""

    log_probability: Tensor  # (problems, samples, decisions), 0 where masked
    entropy: Tensor  # (problems, decisions) nats, 0 where masked
    mask: Tensor  # (problems, decisions) bool, False where padded
    of_order: int = 0  # of the decisions, how many, the last ones, are of the order and not of devices

    @property
    def of_devices(self) -> Tensor:
        """(problems, decisions) bool: the mask without decisions of the order."""
        if not self.of_order:
            return self.mask
        return torch.cat([self.mask[:, : -self.of_order], torch.zeros_like(self.mask[:, -self.of_order :])], 1)

    def with_order(self, log_probability: Tensor, mask: Tensor) -> Scores:
        """Further decisions, (problems, samples, decisions) and (problems, decisions), whose entropy never changes."""
        entropy = torch.cat([self.entropy, torch.zeros(mask.shape)], 1)
        rated = torch.cat([self.log_probability, log_probability], 2)
        return Scores(rated, entropy, torch.cat([self.mask, mask], 1), mask.shape[1])


class Policy(LearnedPolicy, Generic[View, Batch, A]):
    """A distribution over whole placements, which PPO trains.

    One that also repairs plans, or chooses an order, has the methods of `placers.contract.abilities`.
    """

    trainer = "ppo"

    @abstractmethod
    def view(self, problem: Problem) -> View:
        """What the policy sees of a problem, made once. Raises InputError if the policy is not for such a problem."""

    @abstractmethod
    def stack(self, views: Sequence[View]) -> Batch:
        """Several views as a batch."""

    @abstractmethod
    def act(self, batch: Batch, samples: int, generator: torch.Generator) -> A:
        """Draw `samples` actions for each problem of a batch."""

    @abstractmethod
    def score(self, batch: Batch, action: A) -> Scores:
        """Log-probabilities and entropy of actions, differentiable."""

    @abstractmethod
    def actions_of(self, batch: Batch, placements: Sequence[Ints]) -> A:
        """Actions, one for each problem, that lead to placements, (units,) each."""

    def drawn_orders(self, batch: Batch, action: A) -> Sequence[Floats | None]:  # noqa: ARG002 - most draw none
        """For each problem, (samples, ops) the priorities that were drawn with the devices; None: those of its rule."""
        return [None] * len(action.devices)
