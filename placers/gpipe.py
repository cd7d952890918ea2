"""GPipe's partition (Huang et al. 2019): units in topological order, in as many blocks as devices, of balanced time.

It is the classic linear partition of section 2.1, as torchgpipe balances by time. Forward and backward ops of a unit
share its device, so a block is a stage. Neither memory nor transfers count, as published. On unequal devices, time is
the mean over them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.costs.costs import unit_seconds
from envs.placer_result import PlacerResult
from graphs.foundation.by_name import Named
from graphs.problem import Problem
from placers.stages.chain import least_bottleneck


@dataclass(frozen=True)
class GPipe(Named):
    """Stages one after the other, with the least time of the largest."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002 - nothing to search
        """Without any simulation."""
        order = problem.units.order
        blocks, nothing = min(len(problem.cluster), len(order)), np.zeros(len(order))
        seconds = np.repeat(unit_seconds(problem).mean(axis=1)[order, None], blocks, axis=1)
        stages = least_bottleneck(seconds, nothing, nothing, np.zeros(blocks), may_be_empty=False)
        assert stages is not None  # nothing is held, so all partitions keep to the limits
        return PlacerResult.of_units(problem, stages[np.argsort(order)], self.name, seed)


build = GPipe
