"""Filled: how much memory the devices of a pipeline take, by formula, and recomputation where they take too much."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from envs.pipelines.pipeline import LayerPipeline
from graphs.op_graph import Floats
from placers.learned.whole_plans.chain_view import ChainView

NOTHING = 1e-9  # bytes, in place of no memory at all
MARGIN = 0.95  # of the memory is what the formula may fill; ours


def filled(view: ChainView, pipeline: LayerPipeline) -> Floats:
    """(devices,) bytes over memory; several stages on a device add up."""
    found = np.zeros(len(view.memory))
    for number, stage in enumerate(pipeline.stages):
        share = 1.0 / (pipeline.micro_batches * len(stage.devices))
        kept = (view.kept[stage.end] - view.kept[stage.first]) * share
        flying = in_flight(pipeline, number)
        kept = kept + view.crossing[stage.first] * share * flying if number in pipeline.recompute else kept * flying
        found[list(stage.devices)] += view.held[stage.end] - view.held[stage.first] + kept
    return np.where(found > 0, found / np.maximum(view.memory, NOTHING), 0.0)


def in_flight(pipeline: LayerPipeline, number: int) -> float:
    """Micro-batches whose outputs a stage keeps at a time, by its order of passes."""
    following, micro_batches = len(pipeline.stages) - number, pipeline.micro_batches
    if pipeline.order == "gpipe":
        return micro_batches
    if pipeline.order == "early_backward_b":
        return min(2 * following - 1, micro_batches)
    return min(following, micro_batches)


def made_to_fit(view: ChainView, pipeline: LayerPipeline) -> LayerPipeline:
    """The same pipeline, in which stages of devices that seem too full are computed again, those that free most first.

    It may still not fit, where that does not suffice.
    """
    again = set(pipeline.recompute)
    if not view.problem.graph.is_training:
        return pipeline
    while True:
        current = replace(pipeline, recompute=tuple(sorted(again)))
        full = filled(view, current)
        if full.max() <= MARGIN:
            return current
        device = int(full.argmax())
        hosted = [n for n, stage in enumerate(pipeline.stages) if device in stage.devices and n not in again]
        if not hosted:
            return current
        again.add(max(hosted, key=lambda n: view.kept[pipeline.stages[n].end] - view.kept[pipeline.stages[n].first]))
