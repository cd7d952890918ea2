"""Refinement: the cuts of a pipeline, and what of a stage is computed again, moved unit by unit; judged op by op."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline
from graphs.op_graph import Ints
from placers.pipelines.contest import Contestant
from placers.pipelines.merit import Merit
from placers.pipelines.moves import with_again_moved, with_cut_moved
from placers.pipelines.pipeline_evaluator import PipelineEvaluator

Move = Callable[[LayerPipeline, int, int], LayerPipeline | None]
OFFERED = 2  # pipelines at most, of what is moved at the grain of stages
STEPS = (1, 2, 4, 8, 16)  # units, the longest steps first


def refined(
    pipeline: LayerPipeline, merit: Callable[[LayerPipeline], Merit], most: int
) -> LayerPipeline:  # fmt: skip
    """The best that follows from moving cuts of a pipeline, as long as that helps; at most `most` are judged."""
    current, best = pipeline, merit(pipeline)
    tried, improving = 1, True
    while improving:
        improving = False
        for move, place, by in _moves(current):
            moved = move(current, place, by)
            if moved is None:
                continue
            if tried >= most:
                return current
            found = merit(moved)
            tried += 1
            if found < best:
                current, best, improving = moved, found, True
    return current


def refined_by_stages(
    pipeline: LayerPipeline,
    evaluator: PipelineEvaluator,
    offered: Callable[[LayerPipeline], Contestant | None],
    most: int,
) -> None:
    """The same at the grain of stages; what is `offered` op by op may lack memory, and then less of it is taken."""
    for _ in range(OFFERED):
        found = refined(pipeline, evaluator.merit, min(most, evaluator.spent.left - OFFERED))
        entry = offered(found)
        if entry is None or not entry.merit.lacking:
            return
        evaluator.memory_factor = evaluator.memory_ratio(found, entry)


def _moves(pipeline: LayerPipeline) -> Iterator[tuple[Move, int, int]]:
    """What may be moved, the stage that it is of, and by how many units."""
    stages = range(len(pipeline.stages))
    has_again = any(stage.again for stage in pipeline.stages)
    for step in STEPS[::-1]:
        yield from ((with_cut_moved, place, by) for place in stages[:-1] for by in (-step, step))
        yield from ((with_again_moved, place, by) for place in stages if has_again for by in (-step, step))


def finer(pipeline: LayerPipeline, layers: Layers, fine: Layers) -> LayerPipeline:
    """The same pipeline of finer layers: the same units in the same order, but cut wherever they may be."""
    begins = _begins(layers, fine)
    bounds = [*begins[[stage.first for stage in pipeline.stages]].tolist(), len(fine)]
    stages = tuple(
        replace(stage, first=first, end=end, again=int(begins[min(stage.first + stage.again, stage.end - 1)]) - first)
        for stage, (first, end) in zip(pipeline.stages, pairwise(bounds), strict=True)
    )
    return replace(pipeline, stages=stages)


def _begins(layers: Layers, fine: Layers) -> Ints:
    """(layers,) the first of the fine layers in each."""
    found = np.full(len(layers), len(fine))
    np.minimum.at(found, layers.of_unit, fine.of_unit)
    return found
