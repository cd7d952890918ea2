"""Plans of one stage on replicas in which all blocks are computed again, with as few layers again as memory admits."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from envs.pipelines.layers import Layers
from envs.plans.plan import Plan
from graphs.op_groups.layer_names import unit_layers
from graphs.problem import Problem
from placers.pipelines.layers_again import LayersAgain, Span
from placers.pipelines.merit import Merit

MOST_LAYERS = 256
TRIED = 4  # plans at most of each kind, as what one of them lacks, or leaves free, corrects what the next one saves


def with_fewer_layers_again(problem: Problem, whole: list[tuple[Plan, Merit]], judged: Callable[[Plan], Merit]) -> None:
    """Judge such plans, from those that fit with all blocks again; most promising ones first, while one may be best.

    Merits are of the fullest device, lacking less than 0 bytes where it has room.
    """
    if not whole:
        return
    devices = whole[0][0].devices[0]
    layers = Layers.of(problem, MOST_LAYERS, devices, unit_layers(problem.graph))
    chains = [_Chain(problem, layers, plan, merit) for plan, merit in whole]
    least = min(merit.value for _, merit in whole)
    for chain in sorted(chains, key=lambda each: each.promise):
        if chain.promise < least:
            least = min(least, chain.improved(judged))


class _Chain:
    """A plan in which all blocks are computed again, and what of it need not be."""

    def __init__(self, problem: Problem, layers: Layers, plan: Plan, merit: Merit) -> None:
        self._plan, self._merit = plan, merit
        self._of_op = layers.of_unit[problem.graph.units]
        self._parts = plan.schedule.micro_batches
        shares = plan.schedule.shares[0] if plan.schedule.shares else (1,) * len(plan.devices[0])
        self._again = LayersAgain.of(problem, layers, max(shares) / (sum(shares) * self._parts))
        self._seconds, self._saved = self._again.of_spans(self._again.blocks)
        self._needed = self._saved + merit.lacking
        self.promise = self._promised(self._spans(self._needed))

    def improved(self, judged: Callable[[Plan], Merit]) -> float:
        """The least seconds of those that were judged and fit."""
        best, enough = self._merit.value, self._saved  # bytes that suffice
        tried = set[tuple[Span, ...]]()
        for spans_of in (self._spans, self._first_blocks):
            needed, short = min(self._needed, enough), 0.0  # bytes that do not suffice
            for _ in range(TRIED):
                spans = spans_of(needed)
                if tuple(spans) in tried or self._promised(spans) >= best:
                    break
                tried.add(tuple(spans))
                merit = judged(self._with(spans))
                if merit.lacking > 0:
                    short = needed
                else:
                    best, enough = min(best, merit.value), needed
                needed += merit.lacking
                needed = needed if short < needed < enough else (short + enough) / 2
        return best

    def _spans(self, needed: float) -> list[Span]:
        return (self._again.least(needed) if needed > 0 else []) or self._again.blocks

    def _first_blocks(self, needed: float) -> list[Span]:
        """As many as suffice: fewer stages, where these take time themselves."""
        blocks = self._again.blocks
        saved = np.cumsum([self._again.saved[each] for each in blocks])
        return blocks[: int(np.searchsorted(saved, needed * (1 - 1e-9))) + 1]

    def _promised(self, spans: list[Span]) -> float:
        """Seconds of a step."""
        return self._merit.value - self._parts * (self._seconds - self._again.of_spans(spans)[0])

    def _with(self, spans: list[Span]) -> Plan:
        """The plan in which these spans are computed again: each run of them is a stage, and so is what is between."""
        is_again = np.zeros(int(self._of_op.max()) + 1, np.bool_)
        for first, end in spans:
            is_again[first:end] = True
        stage = np.cumsum(np.diff(is_again, prepend=is_again[0]))
        again = np.unique(stage[is_again])
        stages, schedule = tuple(stage[self._of_op].tolist()), self._plan.schedule
        shares = schedule.shares[:1] * (int(stage.max()) + 1)
        return replace(
            self._plan, schedule=replace(schedule, stages=stages, recompute=tuple(again.tolist()), shares=shares)
        )
