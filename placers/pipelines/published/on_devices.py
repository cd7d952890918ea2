"""From stages of layers and their number of devices on each server to stages on devices, and to a plan."""

from collections.abc import Sequence

import numpy as np

from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.plans.placer_result import PlacerResult
from graphs.problem import Problem
from placers.contract.whole_plans import check_divides, most_that_divide, why_placements_only
from placers.pipelines.published.pipeline import Stage

MICRO_BATCHES = 8  # unless they are given; ours


def micro_batches_of(problem: Problem, placer: str, given: int) -> int:
    """How many a step has: as given or, if that is 0, `MICRO_BATCHES` or fewer that divide its samples.

    Raises InputError if the given ones do not.
    """
    if given:
        check_divides(problem.graph, placer, given, 1)
    return given or most_that_divide(problem.graph, MICRO_BATCHES)


def layer_stages(stages: Sequence[Stage], servers: Sequence[Sequence[int]]) -> tuple[LayerStage, ...]:
    """The stages on devices; `servers` are the devices of each, taken in their order."""
    left, found = [list(several) for several in servers], list[LayerStage]()
    for stage in stages:
        taken = [free.pop(0) for free, count in zip(left, stage.counts, strict=True) for _ in range(count)]
        found.append(LayerStage(stage.first, stage.end, tuple(taken)))
    return tuple(found)


def pipeline_result(
    problem: Problem, layers: Layers, pipeline: LayerPipeline, placer: str, seed: int, said: str
) -> PlacerResult:
    """The pipeline as a plan, with a sentence on it; only its stages, with a note, where only placements make sense.

    `placer` is the spec of who made it.
    """
    if reason := why_placements_only(problem):
        note = f"{placer.partition(':')[0]}: stages without micro-batches or replicas, since {reason}."
        devices = np.array([stage.devices[0] for stage in pipeline.stages])
        placement = devices[pipeline.stage_of_unit(layers)]
        return PlacerResult.of_units(problem, placement, placer, seed, notes=(note,))
    return PlacerResult(pipeline.plan(problem, layers), placer, seed, notes=(said,))
