"""PassSpans: which passes each device ran in a simulated step of a whole plan, and when.

    gpu:0   F0 F1 B0 F2 B1 F3 B2    B3    U
    gpu:1      F0 B0 F1 B1 F2 B2 F3 B3    U

A span is a pass, or as much of it as a device runs without a break: F is a forward pass, B a backward pass, I and W are
its parts that compute the gradients of inputs and of weights, R is a forward pass that is recomputed, U an update. The
number is the micro-batch. On a device with several stages, the stage comes first, as in PyTorch: 2F0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from envs.expansion.expanded import Expansion, Role
from envs.expansion.layout import Layout
from envs.expansion.pass_lists import INPUT_GRADIENT, WEIGHT_GRADIENT, PassLists
from envs.plans.schedule import AS_READY
from envs.timelines.gantt import GanttRow, Mark
from graphs.algorithms.pairs import distinct_pairs
from graphs.op_graph import Floats, Ints


class SpanKind(IntEnum):
    """What a device computes in a span; drawings show its letter."""

    FORWARD = 0
    BACKWARD = 1
    INPUT_GRADIENT = 2
    WEIGHT_GRADIENT = 3
    RECOMPUTATION = 4
    UPDATE = 5

    @property
    def letter(self) -> str:
        """How drawings call it."""
        return "FBIWRU"[self]

    @property
    def words(self) -> str:
        """How tables and legends call it."""
        return self.name.lower().replace("_", " ")


OF_PHASE = np.array([SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.UPDATE, SpanKind.UPDATE])  # (phases,)
OF_PART = {INPUT_GRADIENT: SpanKind.INPUT_GRADIENT, WEIGHT_GRADIENT: SpanKind.WEIGHT_GRADIENT}


def kinds_of_ops(expansion: Expansion) -> Ints:
    """(expanded ops,) the kind of span that each belongs to."""
    kinds = OF_PHASE[expansion.problem.graph.phase]
    if expansion.plan.schedule.order != AS_READY:
        lists = PassLists.of(Layout(expansion.given, expansion.plan))
        of_pass = lists.kind_of_copies(expansion.role, expansion.origin, expansion.stage, expansion.micro_batch)
        for part, kind in OF_PART.items():
            kinds[(kinds == SpanKind.BACKWARD) & (of_pass == part)] = kind
    return np.where(expansion.role == Role.RECOMPUTED, SpanKind.RECOMPUTATION, kinds)


@dataclass(frozen=True, eq=False)
class PassSpans:
    """Spans by device, and on each device by their start."""

    device: Ints  # (spans,)
    stage: Ints  # (spans,) or -1
    kind: Ints  # (spans,) a SpanKind
    micro_batch: Ints  # (spans,) or -1 for what runs once in a step
    start: Floats  # (spans,) seconds
    finish: Floats  # (spans,) seconds

    def __len__(self) -> int:
        return len(self.device)

    @classmethod
    def of(cls, expansion: Expansion, start: Floats, finish: Floats) -> PassSpans:
        """The spans of an expansion whose ops, (expanded ops,), ran from `start` to `finish`.

        A device that is held after a launch is not idle, nor does it break a span.
        """
        hold = expansion.problem.hold_seconds
        ran = np.flatnonzero(finish > start)
        ran = ran[np.lexsort((start[ran], expansion.placement[ran]))]
        of_op = (expansion.placement, expansion.stage, kinds_of_ops(expansion), expansion.micro_batch)
        columns = np.stack([column[ran] for column in of_op])  # (columns, ops)
        rest = start[ran][1:] - finish[ran][:-1] - hold[columns[0, :-1]]
        breaks = (columns[:, 1:] != columns[:, :-1]).any(axis=0) | (rest > 1e-9 * finish.max(initial=0.0))
        first = np.concatenate([[True], breaks])[: len(ran)]
        last = np.concatenate([breaks, [True]])[: len(ran)]
        device, stage, kind, micro_batch = columns[:, first]
        return cls(device, stage, kind, micro_batch, start[ran][first], finish[ran][last])

    @cached_property
    def _hosted(self) -> tuple[Ints, Ints]:
        """(spans,) which of the stages of its device each span's is, from 0, and how many these are."""
        pairs, which = distinct_pairs(np.stack([self.device, self.stage + 1], axis=1))  # -1 is none
        count = np.bincount(pairs[:, 0])
        first = np.cumsum(count) - count  # pairs are sorted
        return which - first[self.device], count[self.device]

    @property
    def later(self) -> Floats:
        """(spans,) 0 for the first stage of a device to 1 for its last; 0 where it has one."""
        which, count = self._hosted
        return np.asarray(which / np.maximum(count - 1, 1))

    @cached_property
    def labels(self) -> list[str]:
        """(spans,) such as F0, or 2F0 on a device with several stages; U for an update of the step."""
        columns = (self._hosted[1], self.stage, self.kind, self.micro_batch)
        return [
            f"{stage if hosted > 1 and stage >= 0 else ''}{SpanKind(kind).letter}"
            f"{micro_batch if micro_batch >= 0 else ''}"
            for hosted, stage, kind, micro_batch in zip(*(column.tolist() for column in columns), strict=True)
        ]

    @property
    def marks(self) -> list[Mark]:
        """(spans,) how text shows each."""
        return [Mark(SpanKind(kind).letter, label) for kind, label in zip(self.kind.tolist(), self.labels, strict=True)]

    def rows(self, names: Sequence[str]) -> list[GanttRow]:
        """A row for each device, by its name, with the numbers of its spans."""
        mine = (np.flatnonzero(self.device == device) for device in range(len(names)))
        return [
            GanttRow(name, spans, self.start[spans], self.finish[spans])
            for name, spans in zip(names, mine, strict=True)
        ]
