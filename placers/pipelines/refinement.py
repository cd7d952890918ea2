"""Refinement: the cuts of a pipeline moved unit by unit, each judged op by op."""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline
from graphs.op_graph import Ints
from placers.pipelines.contest import Contest
from placers.pipelines.moves import with_cut_moved

STEPS = (1, 2, 4, 8, 16)  # units, the longest steps first


def refined(
    grain: LayerGrain, fine: Layers, pipeline: LayerPipeline, contest: Contest, who: str, most: int
) -> None:  # fmt: skip
    """Offer what follows from moving cuts of a pipeline of layers, as long as that helps, at most `most` plans.

    `fine` are the same units as the layers of the grain, in the same order, but cut wherever they may be.
    """
    problem, splits = grain.problem, grain.splits
    current = _finer(pipeline, grain.layers, fine)
    entry = contest.offer(who, current.plan(problem, fine, splits))
    tried, improving = 1, True
    while entry is not None and improving:
        improving = False
        for place, by in ((place, by) for step in STEPS[::-1] for place in range(len(current.stages) - 1)
                          for by in (-step, step)):  # fmt: skip
            moved = with_cut_moved(current, place, by)
            if moved is None:
                continue
            if tried >= most:
                return
            found = contest.offer(who, moved.plan(problem, fine, splits))
            tried += 1
            if found is not None and found.merit < entry.merit:
                current, entry, improving = moved, found, True


def _finer(pipeline: LayerPipeline, layers: Layers, fine: Layers) -> LayerPipeline:
    """The same pipeline of finer layers."""
    begins = _begins(layers, fine)
    bounds = [*begins[[stage.first for stage in pipeline.stages]].tolist(), len(fine)]
    stages = tuple(
        replace(stage, first=first, end=end)
        for stage, (first, end) in zip(pipeline.stages, pairwise(bounds), strict=True)
    )
    return replace(pipeline, stages=stages)


def _begins(layers: Layers, fine: Layers) -> Ints:
    """(layers,) the first of the fine layers in each."""
    found = np.full(len(layers), len(fine))
    np.minimum.at(found, layers.of_unit, fine.of_unit)
    return found
