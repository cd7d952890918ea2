"""Demonstrations: a policy learns the best placements that are known, before and while it learns from its own.

A policy that is nearly sure everywhere does not find what takes many units to move at once, such as the tail of a
network going to a device of its own: no single step of that pays. Search finds it, at some hundreds of simulations.
What is demonstrated of a problem is the fastest placement that fits so far, whatever found it, so a policy that outdoes
the search imitates itself (Oh et al. 2018, "Self-Imitation Learning").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np
import torch
from torch import Tensor

from placers.learned.policy import A, Batch, Policy, View
from training.learning.labels.forced_decoding import IMPOSSIBLE
from training.learning.rollouts import PpoProblem


@dataclass(frozen=True, eq=False)
class Demonstrations(Generic[A]):
    """The labels of the problems of a batch, as a policy is to imitate them."""

    action: A  # one sample of each problem
    known: Tensor  # (problems, 1) bool: whether a placement of it is known

    @classmethod
    def of(
        cls, policy: Policy[View, Batch, A], batch: Batch, problems: Sequence[PpoProblem[View]]
    ) -> Demonstrations[A]:
        """Those of the problems that a batch was made of."""
        best = [each.prepared.incumbent.placement for each in problems]
        nothing = [np.zeros(len(each.prepared.problem.units), np.int64) for each in problems]
        action = policy.actions_of(batch, [n if b is None else b for b, n in zip(best, nothing, strict=True)])
        return Demonstrations(action, torch.tensor([[b is not None] for b in best]))

    def likelihood(self, log_probability: Tensor, mask: Tensor) -> Tensor:
        """Mean per decision of (problems, decisions) log-probabilities, but for what the policy may not do."""
        counted = mask & self.known
        mean: Tensor = (log_probability * (counted & (log_probability > IMPOSSIBLE))).sum()
        return mean / counted.sum().clamp_min(1)
