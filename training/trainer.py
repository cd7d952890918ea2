"""What a run asks of whatever improves a policy: PPO and REINFORCE are the two that there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor

from envs.prepared_problem import Incumbent
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.policy import LearnedPolicy
from placers.learned.settings import Settings


class Metrics(Protocol):
    """One update in numbers: a dataclass whose fields are a line of `metrics.jsonl`."""

    @property
    def update(self) -> int:
        """Its number, from 1."""
        ...

    @property
    def step_over_bound(self) -> float:
        """Geometric mean of step seconds over the lower bound, of what fits."""
        ...

    @property
    def fitting(self) -> float:
        """Share of the placements that fit."""
        ...


@dataclass(frozen=True)
class Pretraining:
    """Updates that come before those of the trainer."""

    title: str  # "imitating what search finds"
    goal: int  # updates
    done: Callable[[], int]  # updates so far
    update: Callable[[], str]  # do one, and say how it went


class Trainer(Protocol):
    """A policy, its optimizer, and the problems that it learns from.

    Each update draws from generators seeded by (seed, update), so that a run resumed from a checkpoint ends as if it
    had never stopped.
    """

    knows_step_times_only: ClassVar[bool]  # and no other objective
    optimizer: torch.optim.Optimizer
    seed: int
    goal: int  # updates of a whole run, pretraining apart
    pretraining: Pretraining | None  # what comes before, if anything does
    updates: int  # so far
    simulations: int  # so far

    @classmethod
    def of(cls, policy: Any, problems: Sequence[Problem], settings: Settings, seed: int) -> Self:
        """A trainer for a policy that declares it. Raises InputError for a policy that is not for the problems."""
        ...

    @property
    def policy(self) -> LearnedPolicy:
        """What is trained."""
        ...

    def update(self) -> Metrics:
        """Draw placements, simulate them, improve the policy. Raises InputError if it diverges."""
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Tensors and counters from which a run is resumed, in addition to the weights and what Adam knows."""
        ...

    def restore(self, tensors: Mapping[str, Tensor], counters: Mapping[str, str]) -> None:
        """Take a `state`. Raises InputError for that of another run."""
        ...

    def fine_tune(self, opening: Ints, simulations: int) -> Iterator[tuple[int, Incumbent]]:
        """Learn from the first problem alone; yields the simulations taken so far, and the fastest that fits by then.

        The opening, (units,), is simulated first and does not count.
        """
        ...


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, without that beginning."""
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
