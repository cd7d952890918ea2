"""Fewer layers again: which to compute again such that plans fit, with as little time as memory admits.

What each device keeps less is a second label of an exact choice (`placers.pipelines.layers_again`). What one plan lacks
in the engine, or leaves free, corrects what the next one saves.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import Span
from envs.plans.plan import Plan
from graphs.op_graph import Floats
from graphs.op_groups.layer_names import unit_layers
from graphs.problem import Problem
from placers.pipelines.layers_again import LayersAgain
from placers.pipelines.merit import Merit

MOST_LAYERS = 256
TRIED = 4  # plans at most of each kind


class Outcome(NamedTuple):
    """What a plan takes in the engine."""

    over: Floats  # (chains,) bytes that the fullest device of each lacks; less than 0 where it has room
    seconds: float


class FewerLayersAgain:
    """From a plan that was simulated to faster ones that fit, or from one that lacks memory to one that fits.

    Of several chains of layers, each on devices of its own, spans are computed again.
    """

    def __init__(
        self, chains: Sequence[LayersAgain], given: Sequence[list[Span]], outcome: Outcome,
        *, passes: int, busy: Floats | float = 0.0, least: float = -np.inf,
    ) -> None:  # fmt: skip
        """`given` spans are computed again of each chain in a plan that takes `outcome`.

        Each chain is run `passes` times, and without them takes `busy` seconds, (chains,). At `least` so many bytes are
        saved, however much room there is.
        """
        self._chains, self._outcome, self._passes = chains, outcome, passes
        self._busy = np.broadcast_to(np.asarray(busy, np.float64), len(chains))
        saved = [chain.of_spans(spans)[1] for chain, spans in zip(chains, given, strict=True)]
        self._slowest = self._of_slowest(given)
        self._needed = np.maximum(np.array(saved) + outcome.over, least)
        self._most = np.array([chain.of_spans(chain.blocks)[1] for chain in chains])
        suffices = bool((self._needed <= self._most * (1 + 1e-9)).all())
        self.promise = self._promised(self._least(self._needed)) if suffices else np.inf

    def improved(self, judged: Callable[[list[Span]], Outcome], best: float) -> float:
        """The least seconds of those that were judged and fit, from `best` on."""
        enough = self._most  # bytes that suffice
        tried = set[tuple[Span, ...]]()
        for spans_of in (self._least, self._first_blocks):
            needed, short = np.minimum(self._needed, enough), np.zeros(len(enough))  # bytes that do not suffice
            for _ in range(TRIED):
                spans = spans_of(needed)
                every = sorted(span for several in spans for span in several)
                if tuple(every) in tried or self._promised(spans) >= best:
                    break
                tried.add(tuple(every))
                over, seconds = judged(every)
                short, enough = np.where(over > 0, needed, short), np.where(over > 0, enough, needed)
                if not (over > 0).any():
                    best = min(best, seconds)
                needed = needed + over
                needed = np.where((short < needed) & (needed < enough), needed, (short + enough) / 2)
        return best

    def _least(self, needed: Floats) -> list[list[Span]]:
        """Of each chain the spans of least seconds that save as many bytes; all blocks, if none do."""
        found = list[list[Span]]()
        for chain, wanted in zip(self._chains, needed.tolist(), strict=True):
            spans = chain.least(wanted) if wanted > 0 else []
            found.append(chain.blocks if spans is None else spans)
        return found

    def _first_blocks(self, needed: Floats) -> list[list[Span]]:
        """As many as suffice: fewer stages, where these take time themselves."""
        found = list[list[Span]]()
        for chain, wanted in zip(self._chains, needed.tolist(), strict=True):
            saved = np.cumsum([chain.saved[each] for each in chain.blocks])
            count = int(np.searchsorted(saved, wanted * (1 - 1e-9))) + 1
            found.append(chain.blocks[:count] if wanted > 0 else [])
        return found

    def _of_slowest(self, spans: Sequence[list[Span]]) -> float:
        """Seconds of a pass of the slowest chain."""
        again = [chain.of_spans(several)[0] for chain, several in zip(self._chains, spans, strict=True)]
        return float((self._busy + again).max())

    def _promised(self, spans: Sequence[list[Span]]) -> float:
        """Seconds of a step."""
        return self._outcome.seconds - self._passes * (self._slowest - self._of_slowest(spans))


def with_fewer_layers_again(
    problem: Problem, whole: list[tuple[Plan, Merit]], judged: Callable[[Plan], Merit], best: float
) -> None:
    """Judge plans of one stage on replicas, from those on that fit with all blocks again; most promising ones first.

    Each is judged if it promises less than `best` seconds, and computes something again. Merits are of the fullest
    device, lacking less than 0 bytes where it has room.
    """
    if not whole:
        return
    layers = Layers.of(problem, MOST_LAYERS, whole[0][0].devices[0], unit_layers(problem.graph))
    least = min(best, *(merit.value for _, merit in whole))
    plans = [(_of_one_stage(problem, layers, plan, merit), plan) for plan, merit in whole]
    for fewer, plan in sorted(plans, key=lambda each: each[0].promise):

        def outcome(spans: list[Span], plan: Plan = plan) -> Outcome:
            merit = judged(_with_spans(problem, layers, plan, spans))
            return Outcome(np.array([merit.lacking]), merit.value)

        if fewer.promise < least:
            least = fewer.improved(outcome, least)


def _of_one_stage(problem: Problem, layers: Layers, plan: Plan, merit: Merit) -> FewerLayersAgain:
    parts, shares = plan.schedule.micro_batches, plan.schedule.shares[0] if plan.schedule.shares else ()
    share = max(shares) / sum(shares) if shares else 1 / len(plan.devices[0])
    again = LayersAgain.of(problem, layers, share / parts)
    outcome = Outcome(np.array([merit.lacking]), merit.value)
    return FewerLayersAgain([again], [again.blocks], outcome, passes=parts, least=1.0)


def _with_spans(problem: Problem, layers: Layers, plan: Plan, spans: list[Span]) -> Plan:
    """The plan in which these spans are computed again: each run of them is a stage, and so is what is between."""
    is_again = np.zeros(len(layers), np.bool_)
    for first, end in spans:
        is_again[first:end] = True
    stage = np.cumsum(np.diff(is_again, prepend=is_again[0]))
    again, schedule = np.unique(stage[is_again]), plan.schedule
    stages = tuple(stage[layers.of_unit[problem.graph.units]].tolist())
    shares = schedule.shares[:1] * (int(stage.max()) + 1)
    return replace(plan, schedule=replace(schedule, stages=stages, recompute=tuple(again.tolist()), shares=shares))
