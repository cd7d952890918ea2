"""LayerGrain: a problem at the grain of layers, on which pipelines are judged without touching its ops again.

    ops      thousands                        written out at the grain of layers once for a problem,
    layers   some hundreds of layer ops       and costed once for each share of the batch
    stages   a few ops for each stage         written out for each pipeline (`envs.expansion.stage_grain`)

Stages with replicas are several blocks of layers, as many as sum up their gradients in turn: a sum of gradients then
overlaps with the rest of the backward pass, as at op grain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from envs.expansion.expand import expand
from envs.expansion.expanded import Expansion
from envs.expansion.stage_grain import StageGrain
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline
from envs.plan import Plan
from envs.schedule import BUCKET_BYTES, Schedule
from envs.simulation.simulator import Outcome, Simulator
from graphs.op_graph import Ints
from graphs.problem import Problem

MOST_BLOCKS = 6  # of a stage; ours: more change a step's time by less than other differences from op grain
MOST_COPIES = 16  # of a block, over micro-batches; ours: only those of the last micro-batch overlap


@dataclass(frozen=True, eq=False)
class LayerGrain:
    """A problem whose units are these layers."""

    problem: Problem
    layers: Layers
    _parts: dict[float, Problem] = field(default_factory=dict)  # by the share of the batch

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
        """A pipeline written out at the grain of stages. Raises InputError if it is none for the problem."""
        stage_of_layer = np.repeat(
            np.arange(len(pipeline.stages)), [stage.end - stage.first for stage in pipeline.stages]
        )
        stage = stage_of_layer[self.layer].tolist()
        devices = tuple(pipeline.stages[number].devices for number in stage)
        plan = Plan(devices, schedule=pipeline.schedule(tuple(stage)))
        plan.check(self.coarse)
        blocks = self._blocks(pipeline)[self.layer]
        grain = StageGrain(self.coarse, plan, blocks, lambda _, share: self.part(share))
        return expand(grain.coarse, grain.coarse_plan, grain.shared)

    def outcome(self, pipeline: LayerPipeline) -> Outcome:
        """What a step takes at the grain of stages. Raises InputError likewise."""
        written = self.expansion(pipeline)
        return Simulator(written.problem, order=written.order).run(written.placement)

    @cached_property
    def _grain(self) -> StageGrain:
        stages = tuple(self.layers.of_unit[self.problem.graph.units].tolist())
        return StageGrain(self.problem, Plan(((0,),) * len(stages), schedule=Schedule(stages=stages)))

    def _blocks(self, pipeline: LayerPipeline) -> Ints:
        """(layers,) the block of each."""
        found, count = np.zeros(len(self.layers), np.int64), 0
        for stage in pipeline.stages:
            weights = self.layers.weights[stage.first : stage.end]
            before, total = np.cumsum(weights) - weights, float(weights.sum())
            if len(stage.devices) == 1 or not total:
                blocks = np.zeros(len(weights), np.int64)
            else:
                wanted = min(MOST_BLOCKS, int(np.ceil(total / BUCKET_BYTES)), -(-MOST_COPIES // pipeline.micro_batches))
                blocks = np.unique((before / total * wanted).astype(np.int64), return_inverse=True)[1]
            found[stage.first : stage.end] = count + blocks
            count += int(blocks.max()) + 1
        return found
