"""From the plans of others to pipelines of layers, from which a search may begin."""

import itertools

import numpy as np

from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import ONE_F_ONE_B, LayerPipeline, LayerStage
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY, WHOLE_BATCH
from envs.plans.stages import stages_of
from graphs.problem import Problem


def as_pipeline(problem: Problem, layers: Layers, plan: Plan) -> LayerPipeline | None:
    """A plan as a pipeline of layers, its cuts moved to the nearest end of a layer.

    None if its stages are no chain, or if it says what a pipeline of layers cannot: ops divided by their indices,
    weights held in parts, or updated by CPUs, and stages that are computed again otherwise than as a whole once a
    gradient has arrived.
    """
    graph, schedule = problem.graph, plan.schedule
    again_otherwise = schedule.recompute and schedule.recompute_at != WHOLE_BATCH.recompute_at
    if plan.split or schedule.zero or schedule.offload or again_otherwise:
        return None
    stage = stages_of(graph, plan.devices, schedule.stages)
    devices = {int(number): several for number, several in zip(stage, plan.devices, strict=True)}
    of_unit = np.zeros(graph.num_units, np.int64)
    of_unit[graph.units] = stage
    total, count = np.zeros((2, len(layers)))
    np.add.at(total, layers.of_unit, of_unit)
    np.add.at(count, layers.of_unit, 1)
    of_layer = np.round(total / count).astype(np.int64)
    if (np.diff(of_layer) < 0).any() or len(layers) == 0:
        return None
    numbers, first = np.unique(of_layer, return_index=True)
    ends = itertools.pairwise([*first.tolist(), len(layers)])
    stages = tuple(LayerStage(*both, devices[number]) for both, number in zip(ends, numbers.tolist(), strict=True))
    again = tuple(place for place, number in enumerate(numbers.tolist()) if number in schedule.recompute)
    order = ONE_F_ONE_B if schedule.order == AS_READY else schedule.order
    return LayerPipeline(stages, schedule.micro_batches, order, again, schedule.sharing)
