"""Moves of a local search over orders: some ops of a unit become more urgent, or less.

A move changes the priorities of ops in place, and says what it changed: nearly all moves are taken back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from envs.simulation.blueprint import Records
from envs.simulation.compiled import inlined, subroutine
from graphs.algorithms.pairs import row_offsets
from graphs.op_graph import Floats, Ints
from graphs.op_graph.parts import Parts
from graphs.problem import Problem
from placers.search.moves import below

LARGEST = 0.3  # of the spread of all priorities, by which a move changes some at most
SMALLEST = 0.01  # of the largest change; in between, every power of ten is as frequent as the others


class OrderTables(NamedTuple):
    """What moves of the order read, and where they write down what they changed."""

    parts: Ints  # (units + 1,) where the parts of each unit begin (`graphs.op_graph.parts`)
    offsets: Ints  # (parts + 1,) where the ops of each part begin
    ops: Ints  # (ops,) by unit and part
    changed: Ints  # (ops,) the ops that the latest move changed, in its first places
    before: Floats  # (ops,) their priorities before
    largest: float  # change of a priority

    @classmethod
    def of(cls, problem: Problem, priorities: Floats) -> OrderTables:
        """The tables of a problem whose ops have some priorities, (ops,), at first."""
        parts, ops = Parts.of(problem.graph), len(problem.graph)
        return cls(
            row_offsets(parts.unit, len(problem.units)), parts.offsets, parts.ops,
            np.zeros(ops, np.int64), np.zeros(ops), float(LARGEST * np.ptp(priorities)),
        )  # fmt: skip


@subroutine
def move_order(tables: OrderTables, ops: Records, generator: np.random.Generator) -> int:
    """Change priorities of ops at random, all by the same; returns how many ops changed.

    The ops are a whole unit, a part of one, or a single one, each as often. All this is our choice.
    """
    unit = below(len(tables.parts) - 1, generator)
    draw = below(3, generator)
    begin, end = tables.parts[unit], tables.parts[unit + 1]
    if draw > 0:
        begin += below(end - begin, generator)
        end = begin + 1
    begin, end = tables.offsets[begin], tables.offsets[end]
    if draw > 1:
        begin += below(end - begin, generator)
        end = begin + 1
    change = tables.largest * SMALLEST ** generator.random()
    if generator.random() < 0.5:
        change = -change
    for i in range(end - begin):
        op = tables.ops[begin + i]
        tables.changed[i] = op
        tables.before[i] = ops[op].priority
        ops[op].priority += change
    return int(end - begin)


@inlined
def take_back_order(tables: OrderTables, ops: Records, count: int) -> None:
    """Undo the latest move, which changed `count` ops."""
    for i in range(count):
        ops[tables.changed[i]].priority = tables.before[i]
