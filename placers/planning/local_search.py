"""Local search over pipelines: from the best that were proposed, to better neighbours until there are none.

Neighbours are tried in the order of what a formula says of them, and only simulations count. Then the best one is
changed at random in a few places, and the search goes on from there (iterated local search).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from envs.pipelines.pipeline import LayerPipeline
from placers.planning.moves import Moves
from placers.planning.pipeline_evaluator import NONE, PipelineEvaluator

STARTS = 6  # of which each is improved; ours
KICKS = 3  # changes at random, at most
TRIED = 64  # neighbours of a pipeline, those that the formula says most of
LUCK = 0.02  # of the estimate: how far chance changes the order in which they are tried
IN_VAIN = 30  # rounds from the best that lead nowhere, until the search ends


class LocalSearch:
    """Improves pipelines by simulation, until a number of simulations is reached."""

    def __init__(
        self,
        evaluator: PipelineEvaluator,
        moves: Moves,
        estimate: Callable[[LayerPipeline], float],
        generator: np.random.Generator,
    ) -> None:
        """`estimate` are seconds of a step by formula."""
        self._evaluator, self._moves, self._estimate, self._generator = evaluator, moves, estimate, generator

    def run(self, proposals: Sequence[LayerPipeline], until: int) -> LayerPipeline | None:
        """The best pipeline; None if none could be simulated. `until` is the number of simulations at which it ends."""
        self._until = until
        judged = [one for one in proposals if self._left() and self._evaluator.merit(one) < NONE]
        if not judged:
            return None
        best = min(judged, key=self._evaluator.merit)
        for start in sorted(judged, key=self._evaluator.merit)[:STARTS]:
            best = min(best, self._improved(start), key=self._evaluator.merit)
        vain = 0
        while vain < IN_VAIN and self._left():
            found = self._improved(self._kicked(best))
            better = self._evaluator.merit(found) < self._evaluator.merit(best)
            best, vain = (found, 0) if better else (best, vain + 1)
        return best

    def _left(self) -> bool:
        return self._evaluator.spent.left > 0 and self._evaluator.spent.simulations < self._until

    def _improved(self, pipeline: LayerPipeline) -> LayerPipeline:
        """A pipeline none of whose neighbours is better, or the best until the search ends."""
        merit, evaluator = self._evaluator.merit(pipeline), self._evaluator
        improving = True
        while improving:
            improving = False
            for neighbour in self._promising(pipeline):
                if not self._left():
                    break
                found = evaluator.merit(neighbour)
                if found < merit:
                    pipeline, merit, improving = neighbour, found, True
                    break
        return pipeline

    def _kicked(self, pipeline: LayerPipeline) -> LayerPipeline:
        for _ in range(1 + int(self._generator.integers(KICKS))):
            around = list(self._moves.neighbours(pipeline))
            if around:
                pipeline = around[int(self._generator.integers(len(around)))]
        return pipeline

    def _promising(self, pipeline: LayerPipeline) -> list[LayerPipeline]:
        """The neighbours to try, in order: those that the formula says most of, with some chance."""
        around = list(dict.fromkeys(self._moves.neighbours(pipeline)))
        luck = self._generator.standard_exponential(len(around)) * LUCK
        promise = [self._estimate(neighbour) * (1 + chance) for neighbour, chance in zip(around, luck, strict=True)]
        return [around[number] for number in np.argsort(promise, kind="stable")[:TRIED].tolist()]
