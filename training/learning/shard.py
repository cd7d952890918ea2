"""Shard: a part of the problems that PPO learns from, which one process holds.

Problems are dealt out by number, those that stay and those that are renewed alike:

    problems   0 1 2 3 4 5 6 ...
    shard 0    0   2   4   6        each shard draws its part of an update's problems, from random numbers of its own,
    shard 1      1   3   5          wherever it is: on one process or on two, an update is the same
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np
import torch

from envs.prepared_problem import PreparedProblem
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from graphs.problem import Problem
from placers.learned.policy import A, Batch, Policy, View
from placers.learned.settings import Ppo
from training.learning.labels.demonstrations import Demonstrations
from training.learning.problem_report import ProblemReport
from training.learning.ranks import Ranks
from training.learning.renewal import RenewedPool
from training.learning.rollouts import PpoProblem, PpoRollouts
from training.learning.trainer import between, generators
from training.problems.random.renewed import RenewedProblems

FIRST_SHARE = 0.2  # of the problems, of the smallest graphs, with which a curriculum begins
SHARDED = 1 << 34  # plus a shard's number, tells its random numbers from those of others


class ProblemShard(Generic[View]):
    """Every `count`th problem from a number on."""

    def __init__(
        self,
        number: int,
        count: int,
        policy: Policy[View, Batch, A],
        problems: Sequence[Problem],
        renewed: RenewedProblems | None,
    ) -> None:
        self.number, self.count, self._all = number, count, len(problems)
        self.stay = {
            i: PpoProblem(PreparedProblem(problems[i]), policy.view) for i in range(number, len(problems), count)
        }
        self.renewed = None if renewed is None else RenewedPool(renewed, policy.view, number, count)

    def seed(self, seed: int) -> tuple[int, ...]:
        """With what generators of this shard are seeded; if it is the only one, with the seed of the run."""
        return (seed,) if self.count == 1 else (seed, SHARDED + self.number)

    def chosen(
        self, settings: Ppo, updates: int, progress: int, *seed: int
    ) -> tuple[list[PpoProblem[View]], torch.Generator]:
        """Its problems in an update, and what draws their samples; `progress` counts the updates of imitation, too.

        Of those that stay, the smaller ones while the curriculum lasts; a share of all is random ones that are renewed.
        """
        chooser, generator = generators(*seed)
        wanted = len(range(self.number, settings.problems_per_update, self.count))
        drawn = list[PpoProblem[View]]()
        if self.renewed is not None:
            share = self.renewed.source.settings.share if self.stay else 1.0
            drawn = self.renewed.drawn(chooser, int(chooser.binomial(wanted, share)), progress)
        stay, lasts = list(self.stay.values()), settings.curriculum * settings.updates
        joined = np.arange(len(stay))
        if updates < lasts:
            share = between(FIRST_SHARE, 1.0, updates / lasts)
            by_size = np.argsort([len(each.prepared.problem.graph) for each in stay], kind="stable")
            joined = by_size[: max(1, round(share * len(stay)))]
        count = min(wanted - len(drawn), len(joined))
        return drawn + [stay[i] for i in chooser.choice(joined, count, replace=False)], generator

    def known(self) -> Mapping[int, PpoProblem[View]]:
        """Its problems by number: those that stay, then the random ones that were met and are held."""
        renewed = {} if self.renewed is None else self.renewed.known()
        return self.stay | {self._all + number: each for number, each in renewed.items()}

    def holds(self, number: int) -> bool:
        """Whether the problem of a number is one of its own."""
        return (number if number < self._all else number - self._all) % self.count == self.number

    def numbered(self, number: int) -> PpoProblem[View]:
        """One of its problems, which is made if need be. Raises InputError if it has no random problems."""
        if number < self._all:
            return self.stay[number]
        if self.renewed is None:
            raise InputError("written by a run that had random problems")
        return self.renewed.at(number - self._all)


@dataclass(frozen=True)
class PartReport:
    """What the ranks tell each other of a shard's part in an update."""

    shard: int
    units: int  # of its problems
    simulations: int
    decisions: int = 0  # of its samples
    problems: tuple[ProblemReport, ...] = ()

    @classmethod
    def of(
        cls,
        shard: int,
        chosen: Sequence[PpoProblem[View]],
        simulations: int,
        rollouts: PpoRollouts[Batch, A] | None = None,
    ) -> PartReport:
        """The report of a shard that meets some of its problems."""
        units = sum(len(each.prepared.problem.units) for each in chosen)
        if rollouts is None:
            return PartReport(shard, units, simulations)
        return PartReport(shard, units, simulations, units * rollouts.advantages.shape[1], rollouts.reports)

    def share(self, reports: Sequence[PartReport]) -> float:
        """Its share of the units of all shards, (shards,), by which its loss counts."""
        return self.units / sum(report.units for report in reports)


@dataclass(frozen=True, eq=False)
class ShardSample(Generic[Batch, A]):
    """What an update learns from a shard."""

    report: PartReport
    rollouts: PpoRollouts[Batch, A]
    best: Demonstrations[A] | None  # what is imitated with the samples
    action: A  # both: samples, then labels


def gathered_reports(ranks: Ranks, mine: Sequence[PartReport]) -> list[PartReport]:
    """Those of all shards, in order; every rank has to ask."""
    return sorted((each for of_rank in ranks.gathered(mine) for each in of_rank), key=lambda each: each.shard)


def summed_by_shard(ranks: Ranks, mine: Sequence[tuple[float, ...]]) -> Floats:
    """(numbers,) the sums over all shards of what comes behind each shard's number; every rank has to ask.

    They are added in the order of the shards, so that ranks change nothing of how sums are rounded.
    """
    of_all = sorted(each for of_rank in ranks.gathered(mine) for each in of_rank)
    sums: Floats = np.array(of_all)[:, 1:].sum(axis=0)
    return sums


def check_shards(settings: Ppo, problems: int, renewed: RenewedProblems | None, ranks: Ranks) -> None:
    """Raise InputError for more ranks than shards, or a shard that would be without a problem."""
    if ranks.count > settings.shards:
        raise InputError(
            f"{ranks.count} processes cannot share {settings.shards} part{'s' * (settings.shards > 1)} of the "
            f"problems; set ppo.shards to {ranks.count} or more, or start fewer processes"
        )
    held = [settings.problems_per_update]
    held += [problems] if problems else []
    held += [renewed.settings.problems] if renewed is not None else []
    if settings.shards > min(held):
        raise InputError(
            f"ppo.shards is {settings.shards}, with {min(held)} problems to deal out; set it to {min(held)} at most"
        )
