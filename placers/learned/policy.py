"""What trainers and placers ask of a policy; each has a view, a batch and an action of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn

from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.settings import Settings


class LearnedPolicy(Protocol):
    """What all policies have in common; each is a torch module."""

    kind: ClassVar[str]  # the folder it comes from: "gdp"
    decoder_features: ClassVar[tuple[str, ...]]  # what it reads of a decision, if that is more than an observation

    def candidates(self, problem: Problem, count: int, seed: int) -> Ints:
        """At most `count` placements worth simulating, (count, units); the first is the most likely one.

        Raises InputError if the policy is not for such a problem.
        """
        ...

    def fine_tuning(self, problem: Problem, simulations: int) -> Settings:
        """The settings with which it is fine-tuned on one problem within a number of simulations."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """As of a module."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """As of a module."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """As of a module."""
        ...


class Action(Protocol):
    """What was decided in several samples of several problems: the devices, and whatever else a policy draws."""

    @property
    def devices(self) -> Tensor:
        """(problems, samples, units); arbitrary at padded units."""
        ...

    def cat(self, other: Self) -> Self:
        """The samples of both, those of the other behind these."""
        ...


@dataclass(frozen=True, eq=False)
class UnitDevices:
    """The action of a policy that draws nothing but the units' devices."""

    devices: Tensor  # (problems, samples, units)

    @classmethod
    def of(cls, placements: Sequence[Ints], units: int) -> UnitDevices:
        """One sample of each problem, from placements (their own units,); 0 where padded."""
        devices = torch.zeros(len(placements), 1, units, dtype=torch.int64)
        for row, placement in zip(devices[:, 0], placements, strict=True):
            row[: len(placement)] = torch.from_numpy(placement)
        return cls(devices)

    def cat(self, other: UnitDevices) -> UnitDevices:
        """The samples of both."""
        return UnitDevices(torch.cat([self.devices, other.devices], 1))


@dataclass(frozen=True, eq=False)
class Scores:
    """How a policy rates actions, decision by decision; most policies decide once for each unit."""

    log_probability: Tensor  # (problems, samples, decisions), 0 where masked
    entropy: Tensor  # (problems, decisions) nats, 0 where masked
    mask: Tensor  # (problems, decisions) bool, False where padded


View = TypeVar("View")
Batch = TypeVar("Batch")
A = TypeVar("A", bound=Action)


class Policy(LearnedPolicy, Protocol[View, Batch, A]):
    """A distribution over whole placements, which PPO trains."""

    def view(self, problem: Problem) -> View:
        """What the policy sees of a problem, made once. Raises InputError if the policy is not for such a problem."""
        ...

    def stack(self, views: Sequence[View]) -> Batch:
        """Several views as a batch."""
        ...

    def act(self, batch: Batch, samples: int, generator: torch.Generator) -> A:
        """Draw `samples` actions for each problem of a batch."""
        ...

    def score(self, batch: Batch, action: A) -> Scores:
        """Log-probabilities and entropy of actions, differentiable."""
        ...

    def actions_of(self, batch: Batch, placements: Sequence[Ints]) -> A:
        """Actions, one for each problem, that lead to placements, (units,) each."""
        ...
