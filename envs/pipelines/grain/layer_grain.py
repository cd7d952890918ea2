"""LayerGrain: a problem at the grain of layers, on which pipelines are judged without touching its ops again.

    ops      thousands                        written out at the grain of layers once for a problem,
    layers   some hundreds of layer ops       and costed once for each share of the batch
    stages   a few ops for each stage         written out for each pipeline (`envs.pipelines.grain.stage_grain`)

Stages with replicas are several blocks of layers, as many as sum up their gradients in turn: a sum of gradients then
overlaps with the rest of the backward pass, as at op grain. Divided stages are the first shards of their replicas
(`envs.pipelines.grain.divided_stages`); what these do of all layers is simulated op by op, once for each way of
dividing and part of the batch.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from envs.costs.costs import costs_of
from envs.expansion.expand import expand
from envs.expansion.expanded import Expansion
from envs.pipelines.grain.divided_stages import DividedStages, Replicas, StageShare
from envs.pipelines.grain.first_shard import FirstShard
from envs.pipelines.grain.stage_grain import StageGrain
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage, StageSplits
from envs.plans.mesh import prime_factors
from envs.plans.plan import Plan
from envs.plans.schedule import BUCKET_BYTES, Schedule
from envs.simulation.simulator import Outcome, Simulator
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem

MOST_BLOCKS = 6  # of a stage; ours: more change a step's time by less than other differences from op grain
MOST_COPIES = 16  # of a block, over micro-batches; ours: only those of the last micro-batch overlap


@dataclass(frozen=True, eq=False)
class LayerGrain:
    """A problem whose units are these layers."""

    problem: Problem
    layers: Layers
    splits: StageSplits | None = None  # of divided stages
    _parts: dict[float, Problem] = field(default_factory=dict)  # by the share of the batch
    _shards: dict[tuple[object, ...], StageShare] = field(default_factory=dict)  # by the way of dividing

    @cached_property
    def coarse(self) -> Problem:
        """The problem of the layer ops."""
        return self._grain.coarse

    @cached_property
    def layer(self) -> Ints:
        """(layer ops,) the layer of each."""
        return self._grain.block

    def part(self, share: float) -> Problem:
        """The coarse problem of a share of the batch: what all ops of a layer cost for it, by the law of the graph."""
        if share not in self._parts:
            self._parts[share] = self._grain.shared(self.coarse, share)
        return self._parts[share]

    def expansion(self, pipeline: LayerPipeline) -> Expansion:
        """A pipeline written out at the grain of stages. Raises InputError if it is not valid for the problem."""
        pipeline = pipeline.in_parts(self.layers)
        stage_of_layer = np.repeat(
            np.arange(len(pipeline.stages)), [stage.end - stage.first for stage in pipeline.stages]
        )
        stage = stage_of_layer[self.layer]
        devices = tuple(pipeline.stages[number].leads for number in stage.tolist())
        plan = Plan(devices, schedule=pipeline.schedule(self.problem, self.layers, tuple(stage.tolist())))
        coarse, part = self.coarse, self.part
        if pipeline.is_divided:
            divided = self._divided(pipeline, stage)
            coarse, part = divided.part(1.0), divided.part
        plan.check(coarse)
        blocks = self._blocks(pipeline)[self.layer]
        grain = StageGrain(coarse, plan, blocks, lambda _, share: part(share))
        return expand(grain.coarse, grain.coarse_plan, grain.shared)

    def outcome(self, pipeline: LayerPipeline) -> Outcome:
        """What a step takes at the grain of stages. Raises InputError likewise."""
        written = self.expansion(pipeline)
        outcome = Simulator(written.problem, order=written.order).run(written.placement)
        peaks = self.on_all_shards(pipeline, outcome.peak_bytes)
        return replace(outcome, peak_bytes=peaks, fits=bool((peaks <= self.problem.cluster.memory_bytes).all()))

    def on_all_shards(self, pipeline: LayerPipeline, values: Floats) -> Floats:
        """(devices,) what is said of the first shards of a pipeline, for the other ones, too."""
        found = values.copy()
        for stage in pipeline.stages:
            found[list(stage.devices)] = np.repeat(values[list(stage.leads)], stage.shards)
        return found

    # ---- divided stages ----------------------------------------------------------------------------------------------

    def _divided(self, pipeline: LayerPipeline, stage: Ints) -> DividedStages:
        """The layer ops, (layer ops,) of these stages, of a pipeline some of whose stages are divided."""
        if self.splits is None:
            raise InputError("a stage of the pipeline is divided; say by which indices")
        if pipeline.sharing != "split":
            raise InputError("a divided stage cannot be combined with replicas that take turns; take the default")
        pipeline.mesh  # noqa: B018 - raises InputError where there is none
        count = pipeline.micro_batches
        replicas = tuple(Replicas(each.devices, each.shards) for each in pipeline.stages)
        seen = tuple(self._seen(each, count) if each.shards > 1 else None for each in pipeline.stages)
        return DividedStages(self.coarse, self._grain.parcels, stage, replicas, count, self.part, seen)

    def _seen(self, stage: LayerStage, micro_batches: int) -> StageShare:
        """What the first shards of a stage do of each layer op, if it had all layers."""
        groups = [stage.devices[first : first + stage.shards] for first in range(0, len(stage.devices), stage.shards)]
        of_groups = [self._first_shard(stage, each, micro_batches * stage.replicas) for each in groups]
        if all(each is of_groups[0] for each in of_groups):
            return of_groups[0]
        seconds = np.zeros((len(self.layer), len(self.problem.cluster)))
        for lead, own in zip(stage.leads, of_groups, strict=True):
            assert own.problem.op_seconds is not None
            seconds[:, lead] = own.problem.op_seconds[:, lead]
        return replace(of_groups[0], problem=replace(of_groups[0].problem, op_seconds=seconds))

    def _first_shard(self, stage: LayerStage, devices: tuple[int, ...], parts: int) -> StageShare:
        key = (stage.replicas, parts, *self._alike(devices))
        if key not in self._shards:
            assert self.splits is not None
            axes = prime_factors(stage.shards)
            split = tuple(option[len(option) - len(axes) :] for option in self.splits(stage))
            of_layer = self.layers.of_unit[self.problem.graph.units]
            shard = FirstShard.of(self.problem, split, axes, devices, parts, of_layer)
            self._shards[key] = StageShare.of(shard, self._grain)
        return self._shards[key]

    def _alike(self, devices: tuple[int, ...]) -> tuple[object, ...]:
        """What is equal of devices of equal speed and with equal links."""
        cluster, pairs = self.problem.cluster, np.ix_(devices, devices)
        channel = np.unique(cluster.channel[pairs], return_inverse=True)[1]
        links = cluster.latency[pairs].tobytes(), cluster.bandwidth[pairs].tobytes(), channel.tobytes()
        return (*self._kind[list(devices)].tolist(), *links)

    @cached_property
    def _kind(self) -> Ints:
        """(devices,) which of them are equally fast."""
        cluster = self.problem.cluster
        holds = (
            self.problem.hold_seconds,
            cluster.message_seconds,
            cluster.message_seconds_per_byte,
            cluster.pass_seconds,
        )
        seconds = np.vstack([costs_of(self.problem).op_seconds, *holds])
        return np.unique(seconds, axis=1, return_inverse=True)[1].ravel()

    @cached_property
    def _grain(self) -> StageGrain:
        stages = tuple(self.layers.of_unit[self.problem.graph.units].tolist())
        return StageGrain(self.problem, Plan(((0,),) * len(stages), schedule=Schedule(stages=stages)))

    def _blocks(self, pipeline: LayerPipeline) -> Ints:
        """(layers,) the block of each."""
        found, count = list[Ints](), 0
        for stage in pipeline.stages:
            weights = self.layers.weights[stage.first : stage.end]
            before, total = np.cumsum(weights) - weights, float(weights.sum())
            if stage.replicas == 1 or not total:
                blocks = np.zeros(len(weights), np.int64)
            else:
                wanted = min(MOST_BLOCKS, int(np.ceil(total / BUCKET_BYTES)), -(-MOST_COPIES // pipeline.micro_batches))
                blocks = np.unique((before / total * wanted).astype(np.int64), return_inverse=True)[1]
            found.append(count + blocks)
            count += int(blocks.max()) + 1
        return np.concatenate(found)
