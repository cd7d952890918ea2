"""Expansion: the larger problem that a plan means, its placement, and what each of its ops stands for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from envs.orders import priorities_of
from envs.plans.plan import Plan
from graphs.foundation.by_name import Extension
from graphs.notation.described import Source
from graphs.notation.ranges import Box
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from graphs.runtime import FIFO

_KEPT = 8  # problems and orders: a search expands one problem again and again


class Role(IntEnum):
    """What an op of an expanded graph does."""

    WORK = 0  # a copy of an op of the problem
    RECOMPUTED = 1  # a copy of a forward op that runs again before the backward pass
    SLICE = 2  # a part of an output, cut out to be sent
    SUM = 3  # adds up what arrives
    SEND = 4  # a step of a collective operation
    GATE = 5  # lets ops wait for others
    ARRIVE = 6  # lets recomputation begin: the arrival of gradients, if it waits for them
    VERSION = 7  # an earlier version of weights, kept for backward passes
    PARCEL = 8  # what a pass has made for other stages, which is sent when the pass has ended


HELD = {
    Role.WORK: "output", Role.RECOMPUTED: "output, recomputed", Role.SLICE: "part of the output that is sent",
    Role.SUM: "sum of gradients", Role.SEND: "part of a sum that is sent", Role.GATE: "gathered weights",
    Role.VERSION: "earlier weights", Role.PARCEL: "output that is sent",
}  # fmt: skip
"""What an op holds, of the op that it is a copy of or acts for, by its role; others hold nothing."""


class TensorSlice(NamedTuple):
    """The part of a tensor that an op holds: of a result of an op of the given graph, or of a weight."""

    source: Source
    box: Box


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
    pieces: Mapping[int, TensorSlice] = field(
        default_factory=dict
    )  # by expanded op, of those that shards send and add up
    sums: Mapping[int, tuple[TensorSlice, ...]] = field(
        default_factory=dict
    )  # by expanded op at which an all-reduce of shards ends, what has been added up

    def held_by(self, op: int) -> str:
        """What an op of the expanded graph holds, in words of the given one: "layers.0/mm, output of micro-batch 1"."""
        origin, micro_batch = int(self.origin[op]), int(self.micro_batch[op])
        name = f"{self.given.graph.names[origin]}, " if origin >= 0 else ""
        of = f" of micro-batch {micro_batch}" if micro_batch >= 0 and self.plan.schedule.micro_batches > 1 else ""
        return f"{name}{HELD.get(Role(self.role[op]), 'nothing')}{of}"

    @property
    def order(self) -> Extension[Any] | Floats:
        """(expanded ops,) priorities: earlier micro-batches first, and the ops of each by the plan's order.

        By that alone, devices would run an op for all micro-batches before the next op, and later stages would wait. A
        rule orders the ops of the given graph: it may read what copies do not have, as ties between ops. What acts for
        no op is the most urgent of its micro-batch, what belongs to none comes last. First come, first served is no
        priorities, and stays the rule that it is.
        """
        found, micro_batches = _priorities(self.given, self.plan.order), self.plan.schedule.micro_batches
        if len(found) == 0:
            return FIFO
        if micro_batches == 1:
            return np.where(self.origin >= 0, found[self.origin], found.min())
        numbers, place = np.unique(found, return_inverse=True)
        turn = np.where(self.micro_batch >= 0, self.micro_batch, micro_batches)
        return (turn * len(numbers) + np.where(self.origin >= 0, place[self.origin], 0)).astype(np.float64)


def priorities_of_copies(problem: Problem, order: Extension[Any] | tuple[float, ...] | None, origin: Ints) -> Floats:
    """(copies,) the priority number of the op that each is a copy of, or its number in the graph, if there is none."""
    found = _priorities(problem, order)
    return found[origin] if len(found) else origin.astype(np.float64)


@lru_cache(_KEPT)
def _priorities(problem: Problem, order: Extension[Any] | tuple[float, ...] | None) -> Floats:
    """(ops,) as `priorities_of`, or none."""
    return priorities_of(problem, order)
