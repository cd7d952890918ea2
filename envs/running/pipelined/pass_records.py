"""Pass records: when a device ran passes, as spans of the ops of the plan's expansion, of stages or of all ops.

A pass is measured as a whole. Where it stands for several ops, as a whole backward pass for both of its parts, or one
that computes the forward pass again, its time is divided among these in proportion to what the simulator gives them.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from envs.expansion.expanded import Expansion, Role
from envs.pass_orders import Pass, PassKind
from envs.running.clock import Mark, read
from envs.running.pipelined.schedule_rows import PASS_OF_KIND
from envs.running.running_step import Span
from graphs.op_graph import Phase

_OF_PHASE = {Phase.FORWARD: PassKind.FORWARD, Phase.BACKWARD: PassKind.INPUT_GRADIENT}


class PassRecords:
    """Of one device which ops each of its passes stands for."""

    def __init__(self, expansion: Expansion, device: int) -> None:
        graph, kinds = expansion.problem.graph, expansion.given.graph.kinds
        seconds = expansion.problem.op_seconds
        assert seconds is not None
        self._seconds = seconds[:, device]
        self._ops: dict[Pass, list[int]] = defaultdict(list)
        self._updates: list[int] = []
        here = (expansion.placement == device) & (expansion.role <= Role.RECOMPUTED) & (expansion.origin >= 0)
        ops = np.flatnonzero(here & (self._seconds > 0))
        again = expansion.role == Role.RECOMPUTED
        for op in ops[np.argsort(~again[ops], kind="stable")].tolist():  # a pass computes again first
            if graph.phase[op] >= Phase.UPDATE:
                self._updates.append(op)
                continue
            kind = PASS_OF_KIND.get(kinds[expansion.origin[op]], _OF_PHASE[graph.phase[op]])
            kind = PassKind.INPUT_GRADIENT if again[op] else kind
            self._ops[Pass(int(expansion.stage[op]), kind, int(expansion.micro_batch[op]))].append(op)

    def spans(self, noted: Sequence[tuple[Pass | None, Mark, Mark]], device: torch.device) -> list[Span]:
        """The spans of passes that ran between two marks, and of the updates of all weights, which are None."""
        times = read(noted, device)
        return [span for each, start, finish in times for span in self._divided(self._of(each), start, finish)]

    def _of(self, each: Pass | None) -> list[int]:
        if each is None:
            return self._updates
        kinds = [each.kind]
        if each.kind == PassKind.BACKWARD:
            kinds = [PassKind.INPUT_GRADIENT, PassKind.WEIGHT_GRADIENT]
        return [op for kind in kinds for op in self._ops.get(each._replace(kind=kind), ())]

    def _divided(self, ops: list[int], start: float, finish: float) -> list[Span]:
        """Ops one after the other, each for its share of the time."""
        ends = np.cumsum([0.0, *self._seconds[ops]])
        times = (start + (finish - start) * ends / max(ends[-1], 1e-30)).tolist()
        return [Span(op, *span) for op, span in zip(ops, pairwise(times), strict=True)]
