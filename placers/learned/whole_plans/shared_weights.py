"""Weights that several stages use, such as a tied embedding: when all of these have the new values.

    stage 3    ... B B        sums up          gradients ->             <- new weights
    stage 0    ... B B B B            sums up               updates

One stage updates them. The gradients of the others are sent there, and the new values back: to each replica from the
one in its place, on the same links one after the other.
"""

import numpy as np

from envs.pipelines.pipeline import LayerPipeline
from graphs.algorithms.pairs import distinct_pairs
from graphs.op_graph import Floats
from placers.pipelines.pipeline_formula import PipelineFormula


def equal_again(formula: PipelineFormula, pipeline: LayerPipeline, updated: Floats, *, often: int = 1) -> float:
    """Seconds of a step until then, 0 if there are no such weights; `updated`, (stages,), is when each has its own.

    Gradients are sent so `often` as is given: once, or of each micro-batch where stages are divided.
    """
    last = 0.0
    for (one, other), size in _sent(formula, pipeline).items():
        owners, users = pipeline.stages[one].devices, pipeline.stages[other].devices
        there, back = formula.links.copying(users, owners), formula.links.copying(owners, users)
        first, summed = (
            updated[other] + there.latency + seconds * size * often for seconds in (there.per_byte, there.busy)
        )
        one_by_one = max(updated[one], first) + back.latency + back.busy * size
        last = max(last, one_by_one, summed + back.latency + back.per_byte * size)
    return last


def _sent(formula: PipelineFormula, pipeline: LayerPipeline) -> dict[tuple[int, int], float]:
    """Bytes, by the stage that updates weights and another one, on other devices, that uses them."""
    if not len(formula.shared_weights):
        return {}
    stage = np.repeat(np.arange(len(pipeline.stages)), [each.end - each.first for each in pipeline.stages])
    weight, owner, user = formula.shared_weights.T
    found = dict[tuple[int, int], float]()
    for number, other in distinct_pairs(np.column_stack([weight, stage[user]]))[0].tolist():
        one = int(stage[owner[weight == number][0]])
        if pipeline.stages[one].devices != pipeline.stages[other].devices:
            size = float(formula.grain.coarse.graph.moved_bytes[number])
            found[one, other] = found.get((one, other), 0.0) + size
    return found
