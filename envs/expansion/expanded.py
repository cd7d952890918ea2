"""Expansion: the larger problem that a plan means, its placement, and what each of its ops stands for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from envs.plan import Plan
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem


class Role(IntEnum):
    """What an op of an expanded graph does."""

    WORK = 0  # a copy of an op of the problem
    RECOMPUTED = 1  # a copy of a forward op that runs again before the backward pass
    SLICE = 2  # a part of an output, cut out to be sent
    SUM = 3  # adds up what arrives
    SEND = 4  # a step of a collective operation
    GATE = 5  # lets ops wait for others
    ARRIVE = 6  # the arrival of a gradient, for which recomputation waits
    VERSION = 7  # an earlier version of weights, kept for backward passes


@dataclass(frozen=True, eq=False)
class Expansion:
    """A plan for a problem, written out. Each op of the expanded graph is a unit by itself."""

    given: Problem  # the problem that the plan is for
    plan: Plan
    problem: Problem  # the expanded one
    placement: Ints  # (expanded ops,) device
    origin: Ints  # (expanded ops,) the op of the given graph that each is a copy of, or acts for; -1 if none
    micro_batch: Ints  # (expanded ops,) or -1
    replica: Ints  # (expanded ops,) of the op's stage, or -1
    stage: Ints  # (expanded ops,) or -1
    role: Ints  # (expanded ops,) a Role

    @property
    def order(self) -> str | Floats:
        """The plan's order: a rule, or (expanded ops,) numbers, of each op its origin's and of others the smallest."""
        if isinstance(self.plan.order, str):
            return self.plan.order
        numbers = np.array(self.plan.order)
        return np.where(self.origin >= 0, numbers[self.origin], numbers.min())
