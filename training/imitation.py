"""Imitation: a policy learns the best placements that are known before, and while, it learns from its own.

A policy that is nearly sure everywhere does not find what takes many units to move at once, such as the tail of a
network going to a device of its own: no single step of that pays. Search finds it, at some hundreds of simulations,
and the policy is shown. What it is shown of a problem is the fastest placement that fits so far, whoever found it, so
a policy that outdoes the search imitates itself (Oh et al. 2018, "Self-Imitation Learning").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from placers.annealing import Annealing
from training.rollouts import Arena, Policy

FORBIDDEN = -1e6  # log-probability below which the policy may not choose what it is shown


def search(arena: Arena, simulations: int, seed: int) -> None:
    """Let annealing place the arena's problem; the arena remembers what it finds."""
    plan = Annealing().place(arena.problem, seed=seed, budget=simulations).plan
    arena.simulate(plan.per_unit(arena.problem)[None])


@dataclass(frozen=True, eq=False)
class Shown:
    """The best known placements of the problems of a batch, as a policy is shown them."""

    actions: Tensor  # (problems, 1, columns)
    counted: Tensor  # (problems, columns) bool: what is decided, of problems of which a placement is known

    @classmethod
    def to(cls, policy: Policy, batch: Any, arenas: Sequence[Arena]) -> Shown:
        """What the policy is to imitate in a batch of these arenas' problems."""
        known = [arena.best_placement for arena in arenas]
        nothing = [np.zeros(arena.problem.graph.num_units, np.int64) for arena in arenas]
        actions = policy.actions_of(batch, [n if k is None else k for k, n in zip(known, nothing, strict=True)])
        return cls(actions, batch.unit_mask & torch.tensor([[k is not None] for k in known]))

    def likelihood(self, log_probability: Tensor) -> Tensor:
        """Mean per unit of the actions' log-probabilities, (problems, columns), but for what the policy may not do."""
        mean: Tensor = (log_probability * (self.counted & (log_probability > FORBIDDEN))).sum()
        return mean / self.counted.sum().clamp_min(1)
