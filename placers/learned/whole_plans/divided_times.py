"""Times of divided stages, by a closed form: what shards compute, and what they exchange of each layer with weights.

Where the ops of a layer divide what the weights say, as in tensor parallelism, all shards sum up what the layer makes,
forward and backward, in each micro-batch. Where they divide the batch, they sum up gradients of its weights once. Of
the two each layer is taken to do what takes less time. How ops are really divided is a search
(`placers.splits.stage_splits`), which takes longer than all other closed forms together.
"""

from dataclasses import replace

import numpy as np

from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.plans.schedule import BUCKET_BYTES
from graphs.op_graph import Floats, Phase
from placers.pipelines.cuts import StageTimes
from placers.pipelines.pipeline_formula import PipelineFormula

EXCHANGED = 0.05  # of what passes from a layer to the next, what shards sum up; ours, of problems that it learns from


def slowest_shards(formula: PipelineFormula, pipeline: LayerPipeline) -> LayerPipeline:
    """The pipeline of the slowest shard of each replica, undivided."""
    seconds, stages = formula.devices.seconds, list[LayerStage]()
    for stage in pipeline.stages:
        groups = np.array(stage.devices).reshape(-1, stage.shards)
        slowest = groups[np.arange(len(groups)), seconds[groups].argmax(axis=1)]
        stages.append(replace(stage, devices=tuple(slowest.tolist()), shards=1))
    return replace(pipeline, stages=tuple(stages))


def times_of_divided(formula: PipelineFormula, pipeline: LayerPipeline, times: StageTimes) -> StageTimes:
    """What each stage takes of a micro-batch; `times` are those of its `slowest_shards`, if these did all of it."""
    layers = formula.grain.layers
    forward, backward, summing = times.forward.copy(), times.backward.copy(), times.summing.copy()
    count, made = pipeline.micro_batches, _made(formula)
    for number, stage in enumerate(pipeline.stages):
        here = slice(stage.first, stage.end)
        alone = 1 - 1 / stage.shards  # of what takes its time however little is computed
        forward[number] += alone * (float(layers.forward_fixed[here].sum()) - forward[number])
        backward[number] += alone * (float(layers.backward_fixed[here].sum()) - backward[number])
        summing[number] /= stage.shards
        link = formula.links.summing(stage.devices[: stage.shards])
        part = EXCHANGED / (count * stage.replicas)
        there, back = (np.where(each[here] > 0, link.latency, 0.0) + link.per_byte * each[here] * part for each in made)
        once = link.per_byte * layers.weights[here]
        in_passes = count * (there + back) < once
        forward[number] += float(there[in_passes].sum())
        backward[number] += float(back[in_passes].sum())
        late = float(once[~in_passes].sum())
        buckets = max(np.ceil(float(layers.weights[here][~in_passes].sum()) / BUCKET_BYTES), 1.0)
        summing[number] += max(late / buckets, late - backward[number] * (1 - 1 / buckets))
    return times._replace(forward=np.maximum(forward, 0.0), backward=np.maximum(backward, 0.0), summing=summing)


def _made(formula: PipelineFormula) -> tuple[Floats, Floats]:
    """(layers,) twice: bytes that each makes for later layers, and of gradients for earlier ones."""
    graph, layer = formula.grain.coarse.graph, formula.grain.layer
    producer, consumer = graph.edges[~graph.control].T
    found = list[Floats]()
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        passes = (graph.phase[producer] == phase) & (graph.phase[consumer] == phase)
        read = np.unique(producer[passes & (layer[producer] != layer[consumer])])
        found.append(np.bincount(layer[read], graph.moved_bytes[read], len(formula.grain.layers)).astype(np.float64))
    return found[0], found[1]
