"""Local search over pipelines: from several of different forms, to better neighbours until there are none.

The best start is improved first. Then each start has an equal number of simulations to become better; the better half
of them goes on, until one is left (successive halving). Neighbours are tried in the order of what a formula says of
them, corrected by what simulations have shown of changes of their kind. Then good pipelines are changed at random in a
few places, and the search goes on from there (iterated local search).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from envs.pipelines.pipeline import LayerPipeline
from placers.pipelines.merit import INVALID
from placers.pipelines.moves import PipelineMoves, change
from placers.pipelines.pipeline_evaluator import PipelineEvaluator
from placers.pipelines.pipeline_formula import PipelineFormula

STARTS = 8  # of which each is improved; ours
SLICE = 24  # simulations that each of these has at least, or there are fewer starts
KICKS = 3  # changes at random, at most
FROM_BEST = 3.0  # how much rather the best pipelines are changed at random than others
TRIED = 64  # neighbours that are simulated in vain, those that promise most first, before a pipeline is left
CUT_AGAIN = 12  # of these, those of other devices or stages that are also cut again
CUT_CUT_AGAIN = {"devices", "more stages", "fewer stages", "more micro-batches", "fewer micro-batches"}
SPREAD = 0.03  # of the formula's error, relative, before anything is known of a kind
WEIGHT = 4.0  # neighbours that this is worth
MOST = 0.3  # of an error that is learned from
AROUND = 256  # pipelines whose neighbours are kept, as changes at random lead back to them
IN_VAIN = 30  # changes at random that lead to nothing new, one after the other, until the search ends


class _Errors:
    """By how much simulated changes of one kind were slower than the formula says: mean and spread of logarithms."""

    def __init__(self) -> None:
        self.count, self.total, self.squares = WEIGHT, 0.0, WEIGHT * SPREAD**2

    def add(self, error: float) -> None:
        error = min(max(error, -MOST), MOST)
        self.count, self.total, self.squares = self.count + 1, self.total + error, self.squares + error**2

    def drawn(self, chance: float) -> float:
        """What to expect, with `chance` from a normal distribution."""
        mean = self.total / self.count
        return mean + chance * math.sqrt(max(self.squares / self.count - mean**2, 0.0))


class _Climb:
    """One start, how far it is improved, and the neighbours to try next; None if those are not known yet."""

    def __init__(self, pipeline: LayerPipeline) -> None:
        self.pipeline = pipeline
        self.around: Iterator[LayerPipeline] | None = None
        self.vain = 0  # simulations since it became better
        self.is_done = False


def of_different_forms(pipelines: Iterable[LayerPipeline]) -> list[LayerPipeline]:
    """The first of each form: order of passes, replicas of each stage, and how they share micro-batches."""
    first: dict[object, LayerPipeline] = {}
    for one in pipelines:
        first.setdefault((one.sharing, one.order, tuple((stage.replicas, stage.shards) for stage in one.stages)), one)
    return list(first.values())


class PipelineSearch:
    """Improves pipelines by simulation, until a number of simulations is reached."""

    def __init__(
        self,
        evaluator: PipelineEvaluator,
        moves: PipelineMoves,
        formula: PipelineFormula,
        generator: np.random.Generator,
    ) -> None:
        self._evaluator, self._moves, self._formula, self._generator = evaluator, moves, formula, generator
        self._errors = defaultdict[str, _Errors](_Errors)
        self._neighbours = lru_cache(AROUND)(lambda one: tuple(dict.fromkeys(moves.neighbours(one))))

    def judged(self, pipelines: Iterable[LayerPipeline], until: int) -> list[LayerPipeline]:
        """Simulate pipelines; those that are plans for the problem, the best first."""
        self._until = until
        known = [one for one in pipelines if self._left() and self._evaluator.merit(one) < INVALID]
        return sorted(known, key=self._evaluator.merit)

    def run(self, starts: Sequence[LayerPipeline], until: int) -> LayerPipeline | None:
        """The best pipeline; None if none could be simulated. `until` is the number of simulations at which it ends."""
        judged = self.judged(starts, until)
        if not judged:
            return None
        most = min(STARTS, max((until - self._evaluator.spent.simulations) // (2 * SLICE), 1))
        several = of_different_forms(judged)[:most]
        climbs = [_Climb(one) for one in several[: 1 << (len(several).bit_length() - 1)]]
        spent = self._evaluator.spent
        self._improve(climbs[0], spent.simulations + (until - spent.simulations) // 2)
        going, each = climbs, self._share(len(climbs))
        while len(going) > 1 and self._left():
            for climb in going:
                self._improve(climb, spent.simulations + each)
            going = sorted(going, key=self._worth)[: len(going) // 2]
        for climb in sorted(climbs, key=self._worth):
            self._improve(climb, until)
        vain = 0
        while vain < IN_VAIN and self._left():
            before = spent.simulations
            climbs = sorted(climbs, key=self._worth)[:STARTS]
            climb = _Climb(self._kicked(climbs[int(len(climbs) * self._generator.random() ** FROM_BEST)].pipeline))
            self._improve(climb, until)
            climbs.append(climb)
            vain = 0 if spent.simulations > before else vain + 1
        return min(climbs, key=self._worth).pipeline

    def _share(self, climbs: int) -> int:
        """Simulations of a climb before half of them end: as many in every round, and as many for the last one."""
        return max((self._until - self._evaluator.spent.simulations) // max(2 * climbs, 1), 1)

    def _left(self) -> bool:
        return self._evaluator.spent.left > 0 and self._evaluator.spent.simulations < self._until

    def _worth(self, climb: _Climb) -> tuple[float, float]:
        return self._evaluator.merit(climb.pipeline)

    def _improve(self, climb: _Climb, until: int) -> None:
        """Go to better neighbours until none is, or until `until` simulations are spent."""
        evaluator = self._evaluator
        merit = evaluator.merit(climb.pipeline)
        while not climb.is_done and self._left() and evaluator.spent.simulations < until:
            if climb.around is None:
                climb.around = iter(self._promising(climb.pipeline))
            neighbour = next(climb.around, None)
            if neighbour is None or climb.vain >= TRIED:
                climb.is_done = True
            else:
                before = evaluator.spent.simulations
                found = evaluator.merit(neighbour)
                climb.vain += evaluator.spent.simulations - before
                if found < INVALID and merit < INVALID:
                    self._learn(climb.pipeline, neighbour, found.value / merit.value)
                if found < merit:
                    climb.pipeline, climb.around, climb.vain, merit = neighbour, None, 0, found

    def _learn(self, before: LayerPipeline, after: LayerPipeline, ratio: float) -> None:
        """Keep how far the formula is off for a change."""
        said = self._formula.estimates(after)[0] / self._formula.estimates(before)[0]
        if ratio > 0 and np.isfinite(said) and said > 0:
            self._errors[change(before, after)].add(math.log(ratio / said))

    def _kicked(self, pipeline: LayerPipeline) -> LayerPipeline:
        for _ in range(1 + int(self._generator.integers(KICKS))):
            around = self._promising(pipeline)[:TRIED]
            if around:
                pipeline = around[int(self._generator.integers(len(around)))]
        return pipeline

    def _promising(self, pipeline: LayerPipeline) -> list[LayerPipeline]:
        """The neighbours to try, in order: those that promise most, with some chance."""
        promise = self._promised(pipeline, self._neighbours(pipeline))
        best = sorted(promise, key=promise.__getitem__)
        other = [one for one in best if change(pipeline, one) in CUT_CUT_AGAIN][:CUT_AGAIN]
        further = [self._formula.cut_again(one) for one in other]
        if self._moves.recompute:
            full = [one for one in [*best[:CUT_AGAIN], *further] if self._formula.estimates(one)[1] > 1]
            further += [by(one) for one in full for by in (self._recomputing, self._formula.with_needed)]
        promise = self._promised(pipeline, further) | promise
        return sorted(promise, key=promise.__getitem__)

    def _recomputing(self, pipeline: LayerPipeline) -> LayerPipeline:
        """With as many more stages recomputed as the memory seems to need: always the one that relieves it most."""
        full = self._formula.estimates(pipeline)[1]
        while full > 1:
            others = [
                replace(pipeline, recompute=tuple(sorted((*pipeline.recompute, stage))))
                for stage in range(len(pipeline.stages)) if stage not in pipeline.recompute
            ]  # fmt: skip
            least = min(others, key=lambda one: self._formula.estimates(one)[1], default=pipeline)
            if least is pipeline or (len(others) == 1 and self._formula.estimates(least)[1] >= full):
                break
            pipeline, full = least, self._formula.estimates(least)[1]
        return pipeline

    def _promised(self, pipeline: LayerPipeline, others: Iterable[LayerPipeline]) -> dict[LayerPipeline, float]:
        """What to expect of each neighbour: the logarithm of its seconds, and more of what seems not to fit."""
        around = list(dict.fromkeys(others))
        chances = self._generator.standard_normal(len(around))
        found = {}
        for one, chance in zip(around, chances.tolist(), strict=True):
            seconds, full = self._formula.estimates(one)
            promise = math.log(seconds) if 0 < seconds < math.inf else seconds
            found[one] = (
                promise + self._errors[change(pipeline, one)].drawn(chance) + max(math.log(max(full, 1.0)), 0.0)
            )
        return found
