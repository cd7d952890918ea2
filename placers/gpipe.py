"""GPipe's partition (Huang et al. 2019): units in topological order, in as many blocks as devices, of balanced time.

Forward and backward ops of a unit share its device, so a block is a stage. Neither memory nor transfers are looked at,
as published. On unequal devices, time is the mean over them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.costs.costs import unit_seconds
from envs.placer_result import PlacerResult
from graphs.foundation.by_name import Named
from graphs.problem import Problem
from placers.stages.chain import blocks


@dataclass(frozen=True)
class GPipe(Named):
    """Stages one after the other, whose largest takes least."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002 - nothing to search
        """Without any simulation."""
        seconds = unit_seconds(problem).mean(axis=1)
        order = problem.units.order
        sizes = blocks(seconds[order].tolist(), min(len(problem.cluster), len(order)))
        placement = np.empty(len(order), np.int64)
        placement[order] = np.repeat(np.arange(len(sizes)), sizes)
        return PlacerResult.of_units(problem, placement, self.name, seed)


build = GPipe
