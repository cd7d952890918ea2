"""Estimate: about what a step of a pipeline takes, by formula: by which the best of several drawn ones is chosen.

A micro-batch passes all stages and comes back; the others follow as fast as the busiest device or link allows:

    U + (M - 1) max(B, L) + A

with U for the first one, B of a device, L of a link, and the slowest update A with its sums of gradients.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from envs.pipelines.pipeline import LayerPipeline, LayerStage
from graphs.op_graph import Floats
from placers.learned.whole_plans.chain_view import ChainView


def estimated(view: ChainView, pipeline: LayerPipeline) -> float:
    """Of a step on the fastest device."""
    micro_batches = pipeline.micro_batches
    busy, first, last, slowest = np.zeros(len(view.speed)), 0.0, 0.0, 0.0
    for number, stage in enumerate(pipeline.stages):
        devices = list(stage.devices)
        once = computing(view, stage, micro_batches, again=number in pipeline.recompute)
        busy[devices] += once
        first += once.max()
        last = max(last, summing(view, stage) - number * float(once.max()) / 2)
    for one, other in pairwise(pipeline.stages):
        sending = sent(view, one, other, micro_batches)
        first += 2 * sending
        slowest = max(slowest, sending)
    return float(first + (micro_batches - 1) * max(busy.max(), slowest) + last)


def computing(view: ChainView, stage: LayerStage, micro_batches: int, *, again: bool) -> Floats:
    """(devices of the stage,) seconds of one micro-batch, forward and backward."""
    share = 1.0 / (micro_batches * len(stage.devices))
    work, fixed = (sums[stage.end] - sums[stage.first] for sums in (view.work, view.fixed))
    if again:
        work = work + view.forward[stage.end] - view.forward[stage.first]
        fixed = fixed * 4 / 3
    return np.asarray((work * share + fixed) / view.speed[list(stage.devices)])


def sent(view: ChainView, one: LayerStage, other: LayerStage, micro_batches: int) -> float:
    """Seconds of what a micro-batch sends from a stage to the next, over the slowest link between them."""
    size = view.crossing[one.end] / (micro_batches * min(len(one.devices), len(other.devices)))
    pairs = np.ix_(one.devices, other.devices)
    return float((view.latency[pairs] + view.per_byte[pairs] * size).max())


def summing(view: ChainView, stage: LayerStage) -> float:
    """Seconds of the update of a stage, and of summing its gradients in a ring."""
    devices, count = list(stage.devices), len(stage.devices)
    update = (view.update[stage.end] - view.update[stage.first]) / view.speed[devices].min()
    if count == 1:
        return float(update)
    ring = [each for each in view.row.tolist() if each in stage.devices]
    size = (view.weights[stage.end] - view.weights[stage.first]) / count
    following = np.roll(ring, -1)
    return float(
        update + 2 * (count - 1) * (view.latency[ring, following] + view.per_byte[ring, following] * size).max()
    )
