"""Parts of units: the ops of a unit that are about as urgent as each other, which an order may treat alike.

A unit has up to four: its forward ops, gradients that other gradients wait for, gradients that none waits for, as of
weights, and updates. Every op is in one part:

    ops      a b | a' b' | gradients of a's and b's weights | their updates      of one unit
    kind      0      1                    2                        3
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphs.op_graph import Ints, OpGraph, Phase

FORWARD, AWAITED, UNAWAITED, UPDATE = range(4)  # kinds
KINDS = 4


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a graph's units, by unit and kind."""

    unit: Ints  # (parts,) that it belongs to
    kind: Ints  # (parts,)
    ops: Ints  # (ops,) by part
    offsets: Ints  # (parts + 1,) where the ops of each part begin, in `ops`

    @classmethod
    def of(cls, graph: OpGraph) -> Parts:
        """Those of a graph."""
        key = graph.units * KINDS + _kinds(graph)
        ops = np.argsort(key, kind="stable")
        keys, first = np.unique(key[ops], return_index=True)
        return cls(keys // KINDS, keys % KINDS, ops, np.append(first, len(graph)))

    def __len__(self) -> int:
        return len(self.unit)

    @property
    def of_op(self) -> Ints:
        """(ops,) the part of each op."""
        part = np.empty(len(self.ops), np.int64)
        part[self.ops] = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        return part


def _kinds(graph: OpGraph) -> Ints:
    """(ops,) the kind of each op's part."""
    kinds = np.full(len(graph), FORWARD)
    kinds[graph.phase == Phase.BACKWARD] = UNAWAITED
    kinds[graph.phase >= Phase.UPDATE] = UPDATE
    producers, consumers = graph.edges.T
    kinds[producers[(kinds[producers] == UNAWAITED) & (kinds[consumers] == UNAWAITED)]] = AWAITED
    return kinds
