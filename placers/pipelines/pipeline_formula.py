"""What a pipeline costs by formula, unsimulated: a planner proposes by it, and a policy of whole plans sees by it.

Seconds of stages, of what they send and of sums of gradients, micro-batches in flight and memory are put together for
given stages on given devices; `placers.pipelines.cuts` says what a step takes of them, and where stages are best cut.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from itertools import pairwise

import numpy as np

from envs.costs.costs import costs_of
from envs.pass_orders import InLessMemory, PassOrder
from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.grain.stage_grain import BACKWARD, GRADIENT, KINDS
from envs.pipelines.pipeline import ONE_F_ONE_B, LayerPipeline
from envs.plans.schedule import AS_READY, Sharing
from graphs.foundation.by_name import Extension
from graphs.op_graph import Floats, Ints, Phase
from placers.pipelines.cuts import ALL, NEEDED, Cut, CutFormula, StagePlaces, StageTimes
from placers.pipelines.links_between import LinksBetween
from placers.pipelines.places import Sets
from placers.pipelines.stage_costs import kinds_of, shares_of_kinds, stage_costs

KNOWN = 1 << 14  # pipelines that a search may meet again, whose estimates and cuts are kept; ours
RECENT = 1 << 8  # whose places are kept, since several things are asked of each in turn


class PipelineFormula:
    """The formula for pipelines of a problem's layers on devices that may be used."""

    def __init__(self, grain: LayerGrain, used: Sequence[int]) -> None:
        self.grain = grain
        self.costs, self.devices = stage_costs(grain, used)
        self.links = LinksBetween(grain.problem.cluster)
        self._kinds = cache(lambda several: kinds_of(self.devices, several))
        self._shares = cache(lambda several: shares_of_kinds(self.devices, several))
        self._memory = cache(lambda several: max(float(self.devices.memory_bytes[list(several)].min()), 1e-9))
        self._cuts = CutFormula(self.costs)
        self.estimates = lru_cache(KNOWN)(self._estimates)
        self.cut_again = lru_cache(KNOWN)(self._cut_again)
        self.with_needed = lru_cache(KNOWN)(self._with_needed)
        self._places_of = lru_cache(RECENT)(self._found_places)

    def _estimates(self, pipeline: LayerPipeline) -> tuple[float, float]:
        """Seconds of a step, and what the fullest device needs over what it has."""
        return self._cuts.estimated(self._places_of(pipeline), _ends(pipeline), pipeline.micro_batches)

    def filled(self, pipeline: LayerPipeline) -> Floats:
        """(stages,) what each needs of its smallest device's memory, over what it may take there."""
        return self._cuts.filled(self._places_of(pipeline), _ends(pipeline), pipeline.micro_batches)

    def kept(self, pipeline: LayerPipeline) -> Floats:
        """(devices,) bytes of the activations of a micro-batch, of all stages of each device of the cluster."""
        found = np.zeros(len(self.devices.kind))
        for stage in pipeline.stages:
            of_batch = self.costs.kept[stage.end] - self.costs.kept[stage.first]
            found[list(stage.devices)] += of_batch / (pipeline.micro_batches * stage.replicas)
        return found

    def held(self, pipeline: LayerPipeline) -> tuple[Floats, Floats]:
        """(stages,) the share of the batch that a replica computes at a time, and how many it holds of these."""
        places = self._places_of(pipeline)
        return places.share / pipeline.micro_batches, places.flying

    def times(self, pipeline: LayerPipeline) -> tuple[float, float, float, float]:
        """Seconds of a forward pass, an input gradient, a weight gradient and a transfer, the means of all stages."""
        found = self.of_stages(pipeline)
        backward, sent = float(found.backward.mean()), np.concatenate([found.there[1:], found.back[1:]])
        apart = self.of_weights
        return float(found.forward.mean()), backward * (1 - apart), backward * apart, float(sent.mean())

    def of_stages(self, pipeline: LayerPipeline) -> StageTimes:
        """What each stage takes of a micro-batch."""
        return self._cuts.times(self._places_of(pipeline), _ends(pipeline), pipeline.micro_batches)

    def memory_of_stages(self, pipeline: LayerPipeline) -> tuple[Floats, Floats, Floats]:
        """(stages,) bytes: of each micro-batch in flight, of all else, and of the smallest device of each stage."""
        places, ends = self._places_of(pipeline), _ends(pipeline)
        hosted, alone = Counter(sets_of(pipeline)), np.ones(len(pipeline.stages))
        one, two = (
            self._cuts.filled(places._replace(flying=count * alone, limit=alone), ends, pipeline.micro_batches)
            for count in (1, 2)
        )
        return two - one, 2 * one - two, places.limit * [hosted[stage.devices] for stage in pipeline.stages]

    @cached_property
    def of_weights(self) -> float:
        """Of the seconds of a backward pass, the share that makes gradients of weights."""
        problem = self.grain.coarse
        seconds = costs_of(problem).busy_seconds(problem).min(axis=1)
        kinds = np.array(problem.graph.kinds)
        inputs, weights = (float(seconds[kinds == KINDS[part]].sum()) for part in (BACKWARD, GRADIENT))
        return weights / max(inputs + weights, 1e-30)

    @cached_property
    def shared_weights(self) -> Ints:
        """(uses, 3) of weights that several layers use: the weight, the layer that updates it, and one that uses it.

        The weight is the layer op whose output, `moved_bytes`, is what is sent once for all uses of a stage.
        """
        graph, layer = self.grain.coarse.graph, self.grain.layer
        producer, consumer = graph.edges[~graph.control & (graph.phase[graph.edges[:, 1]] == Phase.REFRESH)].T
        return np.column_stack([producer, layer[producer], layer[consumer]])

    def cut(
        self, sets: Sets, micro_batches: int, *, again: int = 0, thorough: bool = True, sharing: Sharing = "split"
    ) -> Cut:
        """Where a 1F1B pipeline on these sets of devices is best cut, as `CutFormula.cut`.

        Computed again are no layers, those of all stages (`ALL`), or as many of each as memory asks for (`NEEDED`).
        """
        flying = in_flight(ONE_F_ONE_B, sets, micro_batches, sharing)
        places = self._places(sets, flying, sharing, np.full(len(sets), again))
        return self._cuts.cut(places, micro_batches, thorough=thorough)

    def _cut_again(self, pipeline: LayerPipeline) -> LayerPipeline:
        """The same pipeline, cut where the formula says."""
        needed = any(stage.again for stage in pipeline.stages)
        cut = self._cuts.cut(self._places_of(pipeline, needed=needed), pipeline.micro_batches, thorough=True)
        return _cut_at(pipeline, cut.ends, cut.again if needed else [0] * len(pipeline.stages))

    def _with_needed(self, pipeline: LayerPipeline) -> LayerPipeline:
        """The same pipeline, in which as many of the first layers of stages are computed again as memory asks for."""
        ends = _ends(pipeline)
        again = self._cuts.again(self._places_of(pipeline, needed=True), ends, pipeline.micro_batches)
        return _cut_at(pipeline, ends.tolist(), again)

    def _found_places(self, pipeline: LayerPipeline, *, needed: bool = False) -> StagePlaces:
        """What the formula knows of the places of a pipeline; `needed`: as many layers again as memory asks for."""
        sets, sharing = sets_of(pipeline), pipeline.sharing
        given = [NEEDED if needed else stage.again for stage in pipeline.stages]
        again = np.array([ALL if stage in pipeline.recompute else each for stage, each in enumerate(given)])
        return self._places(sets, in_flight(pipeline.order, sets, pipeline.micro_batches, sharing), sharing, again)

    def _places(self, sets: Sets, flying: Floats, sharing: Sharing, again: Ints) -> StagePlaces:
        between = self.links.taking_turns if sharing == "turns" else self.links.sending
        before = (sets[0], *sets[:-1])
        forward = [between(one, other) for one, other in zip(before, sets, strict=True)]
        backward = [between(other, one) for one, other in zip(before, sets, strict=True)]
        (there, there_each, there_busy), (back, back_each, back_busy), (late, late_each, _) = (
            np.array(links).T.copy() for links in (forward, backward, [self.links.summing(each) for each in sets])
        )
        count = np.array([float(len(several)) for several in sets])
        of_kind = np.ones((len(sets), len(self.devices.strength)))
        if sharing == "split":
            of_kind = np.array([self._shares(several) for several in sets])
        has_kind = np.array([self._kinds(several) for several in sets])
        rate = count if sharing == "turns" else np.ones(len(sets))
        hosted = Counter(sets)
        return StagePlaces(
            has_kind, np.where(has_kind, of_kind, 0.0).max(axis=1), of_kind, rate,
            np.array([self._memory(several) / hosted[several] for several in sets]),
            flying, there, there_each, there_busy, back, back_each, back_busy, late, late_each, again,
        )  # fmt: skip


def in_flight(order: Extension[PassOrder], sets: Sets, micro_batches: int, sharing: Sharing) -> Floats:
    """(stages,) micro-batches in flight at each replica of a stage; those of 1F1B for orders that are not known."""
    size = np.array([len(several) if sharing == "turns" else 1 for several in sets])
    following = np.cumsum(size[::-1])[::-1]  # places of the pipeline from each stage on
    flying = np.ceil(following / size)
    if order.name == "early_backward_b":
        flying = np.ceil((2 * following - 1) / size)
    elif order.name == "gpipe":
        flying = np.full(len(sets), float(micro_batches))
    elif order not in (ONE_F_ONE_B, AS_READY) and isinstance(order.built, InLessMemory):
        ranks, stages = len(sets) // 2, np.arange(len(sets))
        shares = len(sets) - stages - (stages >= ranks)  # both stages of a device together hold what it holds
        flying = np.maximum(order.built.held(ranks) * shares / ranks, 1.0)
    return np.asarray(np.minimum(flying, np.ceil(micro_batches / size)), np.float64)


def sets_of(pipeline: LayerPipeline) -> Sets:
    """The devices of each stage."""
    return tuple(stage.devices for stage in pipeline.stages)


def _cut_at(pipeline: LayerPipeline, ends: Sequence[int], again: Sequence[int]) -> LayerPipeline:
    """The same pipeline cut there, with so many first layers of stages that are not recomputed as a whole."""
    stages = tuple(
        replace(stage, first=first, end=end, again=0 if number in pipeline.recompute else count)
        for number, (stage, (first, end), count) in enumerate(zip(pipeline.stages, pairwise(ends), again, strict=True))
    )
    return replace(pipeline, stages=stages)


def _ends(pipeline: LayerPipeline) -> Ints:
    """(stages + 1,) where stages end, from 0 on."""
    return np.array([0, *(stage.end for stage in pipeline.stages)], np.int64)
