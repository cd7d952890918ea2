"""Any layers again: pipelines whose stages compute again the layers that save what memory lacks in the least time.

A search gives each stage a number of its first layers to compute again, block by block. Here each device then has the
spans that cost it least, so that the first device of 1F1B, which holds most micro-batches, computes again most:

    layers          0 1 2 3 | 4 5 6 7       two stages in 1F1B, room for 7 outputs on each device
    again           --- -                   the first holds 2 micro-batches, 8 outputs, the last 4
"""

from collections.abc import Callable, Iterable
from itertools import islice

import numpy as np

from envs.pipelines.pipeline import LayerPipeline, Span
from graphs.op_graph import Floats
from placers.pipelines.fewer_layers_again import FewerLayersAgain, Outcome
from placers.pipelines.layers_again import LayersAgain
from placers.pipelines.pipeline_formula import PipelineFormula

MOST = 2  # pipelines of which other layers are computed again; ours
LOOKED_AT = 32  # of those that fit, and of those that lack memory, the best and the fastest ones first
PROMISING = 8  # of either, from which these are chosen
Judged = Callable[[LayerPipeline], tuple[float, Floats] | None]
"""Seconds of a pipeline, and (devices,) bytes that each device of the cluster lacks, less than 0 where it has room."""


def with_any_layers_again(
    pipelines: Iterable[LayerPipeline], best: float, formula: PipelineFormula, judged: Judged
) -> dict[LayerPipeline, LayerPipeline]:
    """Judge pipelines like these while they may be faster than `best`, in seconds; of each, which one it is like.

    These have been judged, the best first. Those that compute layers again, or lack memory, are changed: first of them
    what promises most.
    """
    known = [(*outcome, one) for one in pipelines if not one.is_divided and (outcome := judged(one)) is not None]
    fitting = [each for each in known if (each[1] <= 0).all() and each[2].again(formula.grain.layers)]
    lacking = sorted((each for each in known if (each[1] > 0).any()), key=lambda each: each[0])
    like = dict[LayerPipeline, LayerPipeline]()
    found = list[tuple[FewerLayersAgain, LayerPipeline]]()
    for several in (fitting, lacking):
        changed = ((_of_devices(one, formula, seconds, over), one) for seconds, over, one in several[:LOOKED_AT])
        found += islice((each for each in changed if each[0].promise < best), PROMISING)
    for fewer, pipeline in sorted(found, key=lambda each: each[0].promise)[:MOST]:

        def outcome_of(spans: list[Span], pipeline: LayerPipeline = pipeline) -> Outcome:
            changed = pipeline.computing_again(spans)
            outcome = judged(changed)
            if outcome is None:
                return Outcome(np.full(len(_sets(pipeline)), np.inf), np.inf)
            like[changed] = pipeline
            return Outcome(_fullest(pipeline, outcome[1]), outcome[0])

        if fewer.promise < best:
            best = fewer.improved(outcome_of, best)
    return like


def _of_devices(pipeline: LayerPipeline, formula: PipelineFormula, seconds: float, over: Floats) -> FewerLayersAgain:
    layers = formula.grain.layers
    share, flying = formula.held(pipeline)
    stage = np.repeat(np.arange(len(pipeline.stages)), [each.end - each.first for each in pipeline.stages])
    first = np.array([each.first for each in pipeline.stages])
    of_batch = LayersAgain.of(formula.grain.problem, layers, share[stage])
    passes = (layers.forward + layers.backward) * share[stage] + layers.forward_fixed + layers.backward_fixed
    spans = pipeline.again(layers)
    chains, given, busy = list[LayersAgain](), list[list[Span]](), list[float]()
    for numbers in _sets(pipeline):
        is_here = np.isin(stage, numbers)
        chains.append(of_batch.of_stages(np.where(is_here, flying[stage], 0.0), first[stage]))
        given.append([span for span in spans if is_here[span[0]]])
        busy.append(float(passes[is_here].sum()))
    outcome = Outcome(_fullest(pipeline, over), seconds)
    return FewerLayersAgain(chains, given, outcome, passes=pipeline.micro_batches, busy=np.array(busy))


def _sets(pipeline: LayerPipeline) -> list[list[int]]:
    """The stages of each set of devices."""
    found: dict[tuple[int, ...], list[int]] = {}
    for number, stage in enumerate(pipeline.stages):
        found.setdefault(stage.devices, []).append(number)
    return list(found.values())


def _fullest(pipeline: LayerPipeline, over: Floats) -> Floats:
    """(sets,) of each set of devices the most that one lacks."""
    return np.array([over[list(pipeline.stages[numbers[0]].devices)].max() for numbers in _sets(pipeline)])
