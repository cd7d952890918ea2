"""Trainer: what improves a policy; PPO, REINFORCE and that of whole plans are the three that there are.

One of a user's own is a class in the file of a learned placer. It has `update`, and `__init__(policy, problems,
settings, seed)`, which sets `policy` and `optimizer`, or an `of`; all else has a default.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import msgspec
import numpy as np
import torch
from torch import Tensor

from envs.plans.plan import Plan
from envs.prepared_problem import Incumbent
from graphs.foundation.engine import Engine
from graphs.foundation.errors import InputError
from graphs.foundation.freed_memory import keep_freed_memory
from graphs.foundation.items import Threads
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.problem import Problem
from placers.learned.policy import SavedPolicy
from placers.learned.settings import Ppo, Reinforce, Settings
from training.learning.ranks import ALONE, Ranks
from training.problems.random.renewed import RenewedProblems

COUNTERS = ("updates", "imitated", "simulations")


class Metrics(Protocol):
    """One update in numbers: a dataclass whose fields are in a line of `metrics.jsonl` (`record_of`)."""

    @property
    def update(self) -> int:
        """Its number, from 1."""

    @property
    def step_over_bound(self) -> float:
        """Geometric mean of step seconds over the lower bound, of what fits."""

    @property
    def fitting(self) -> float:
        """Share of the plans that fit."""

    @property
    def decisions(self) -> int:
        """How many the policy took for the samples of this update."""

    @property
    def by_kind(self) -> Mapping[str, float]:
        """Further numbers, of kinds of problems."""


def record_of(metrics: Metrics, seconds: float) -> dict[str, float]:
    """What is logged of an update that took some seconds: names and numbers, frames per second among them."""
    fields = {name: value for name, value in vars(metrics).items() if name != "by_kind"}
    return {**fields, "seconds": seconds, "fps": metrics.decisions / max(seconds, 1e-9), **metrics.by_kind}


class Best(Protocol):
    """The best plan of a problem so far; an `Incumbent` is one."""

    @property
    def value(self) -> float:
        """Its seconds, by the objective; infinite if none fits."""

    def plan(self, problem: Problem) -> Plan | None:
        """The plan; None if none fits."""


class Trainer(ABC):
    """A policy, its optimizer, and the problems that it learns from.

    Each update draws from generators seeded by (seed, update), so that a run resumed from a checkpoint ends as if it
    had never stopped.
    """

    settings_type: ClassVar[type[msgspec.Struct] | None] = None  # of a user's own: of the section [trainer] of a recipe
    version: ClassVar[str] = "1"  # of its state on disk
    knows_step_times_only: ClassVar[bool] = False  # and no other objective
    shares_work: ClassVar[bool] = False  # its searches and simulations, with other processes
    divides_batch: ClassVar[bool] = False  # in its plans: graphs are captured with their batch law
    policy: SavedPolicy
    optimizer: torch.optim.Optimizer

    def __init__(self, seed: int, goal: int) -> None:
        limit_torch_threads()
        keep_freed_memory()
        self.seed = seed
        self.goal = goal  # updates of a whole run, without those of imitation
        self.ranks = ALONE
        self.engine: Engine = Threads()  # what searches labels and simulates
        self.imitation_goal = 0  # updates of imitation alone, which come first
        self.updates = self.imitated = 0  # so far
        self.simulations = 0  # so far

    @classmethod
    def of(
        cls,
        policy: Any,
        problems: Sequence[Problem],
        settings: Settings,
        seed: int,
        renewed: RenewedProblems | None = None,  # noqa: ARG003 - a recipe has none for a trainer of a user's own
        ranks: Ranks = ALONE,
    ) -> Self:
        """A trainer for a policy that declares it, of problems that stay and random ones that are renewed.

        Several ranks each make one, and call the same methods. Unless a trainer says otherwise it learns in one
        process, from problems that stay, and is made of the section [trainer]. Raises InputError for a policy that is
        not for the problems, and for several ranks if it takes but one.
        """
        if ranks.count > 1:
            raise InputError(f"{cls.__name__} learns in one process; start it without torchrun")
        made: Any = cls
        trainer: Self = made(policy, problems, settings.own, seed)
        for name in ("policy", "optimizer"):
            if not hasattr(trainer, name):
                raise InputError(f"{cls.__name__} has no `{name}`; set it in `__init__`")
        return trainer

    @abstractmethod
    def update(self) -> Metrics:
        """Draw placements, simulate them, improve the policy. Raises InputError if it diverges."""

    def imitate(self) -> float:
        """An update of imitation alone; returns the mean log-probability per decision of what it imitated, or NaN.

        Called only while `imitated` is below `imitation_goal`, so a trainer whose goal stays 0 need not have it. Raises
        InputError if the policy diverges.
        """
        raise NotImplementedError(f"{type(self).__name__} does not begin with imitation")

    def state(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Tensors and counters from which a run is resumed, in addition to the weights and what Adam knows."""
        return {}, {"version": self.version} | {name: str(getattr(self, name)) for name in (*COUNTERS, "seed")}

    def restore(
        self,
        tensors: Mapping[str, Tensor],  # noqa: ARG002 - there are none
        counters: Mapping[str, str],
    ) -> None:
        """Take a `state`. Raises InputError for that of another version, seed or run."""
        for key, ours in (("version", self.version), ("seed", str(self.seed))):
            if counters.get(key) != ours:
                raise InputError(f"written with {key} {counters.get(key)}, this run has {key} {ours}")
        self.updates, self.imitated, self.simulations = (int(counters[name]) for name in COUNTERS)

    def fine_tune(self, opening: Plan, simulations: int) -> Iterator[tuple[int, Best]]:
        """Learn from the first problem alone; yields the simulations taken so far, and the fastest that fits by then.

        The opening, such a plan as the policy makes, is simulated first and does not count. Called only for the
        trainers that policies name, so one of a user's own need not have it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not fine-tune")

    def take_rate(self, rate: float) -> None:
        """Have the optimizer learn at a rate."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def scheduled(self, settings: Ppo | Reinforce, imitation: float, progress: float) -> tuple[float, float, float]:
        """Learning rate, entropy bonus and weight of imitation at a share of the run; the optimizer takes the rate."""
        rate = between(settings.learning_rate, settings.final_learning_rate, progress)
        self.take_rate(rate)
        return rate, between(settings.entropy, settings.final_entropy, progress), between(imitation, 0.0, progress)


def share_done(updates: int, all_updates: int) -> float:
    """How much of a run is over after a number of updates: 0 at the first, 1 at the last and beyond."""
    return min(updates / max(all_updates - 1, 1), 1.0)


def between(first: float, last: float, share: float) -> float:
    """What changes linearly from first to last, when a share of the run is over."""
    return first + (last - first) * share


def generators(*seed: int) -> tuple[np.random.Generator, torch.Generator]:
    """What chooses the problems of an update, and what draws its samples."""
    seeds = np.random.SeedSequence(seed).generate_state(2, np.uint64)
    return np.random.default_rng(seeds[0]), torch.Generator().manual_seed(int(seeds[1] >> 1))


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, without that beginning."""
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def written_incumbents(found: Mapping[int, Incumbent]) -> dict[str, Tensor]:
    """Tensors "best.NUMBER" of each that has a placement: its value, then its devices, which float64 holds exactly.

    The priorities of one that has an order of its own are "order.NUMBER".
    """
    written: dict[str, Tensor] = {}
    for number, each in found.items():
        if each.placement is not None:
            written[f"best.{number}"] = torch.from_numpy(np.append(each.value, each.placement))
            if each.priorities is not None:
                written[f"order.{number}"] = torch.from_numpy(each.priorities)
    return written


def read_incumbents(tensors: Mapping[str, Tensor]) -> dict[int, Incumbent]:
    """By number, what `written_incumbents` wrote."""
    values = {int(index): value.numpy() for index, value in below("best.", tensors).items()}
    orders = {int(index): order.numpy() for index, order in below("order.", tensors).items()}
    return {
        index: Incumbent(best[1:].astype(np.int64), float(best[0]), orders.get(index)) for index, best in values.items()
    }
