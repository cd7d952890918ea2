"""LayerPipeline: stages of consecutive layers on sets of devices, what planners and environments decide about.

    layers    0 1 2 | 3 4 5 6 | 7          stages   LayerStage(0, 3, (0,)), LayerStage(3, 7, (1, 2)), ...
    devices     0       1, 2    3                   two replicas of the second stage divide its micro-batches

Replicas on unequal devices have shares by speed. One stage on all devices is data parallelism, and one stage on one
device computes everything there. A replica may be
several shards, which divide the ops of the stage (tensor parallelism), as devices follow one another:

    LayerStage(3, 7, (0, 1, 2, 3, 4, 5, 6, 7), shards=4)     replicas (0, 1, 2, 3) and (4, 5, 6, 7) of four shards each
    mesh              (2, 2, 2)                              the first axis divides the batch, the others as is found

Of a stage all layers may be computed again as one, the first ones block by block, or any spans. Each span is then a
stage of its own on these devices, so that it keeps what enters it, and is computed again when the gradient of its
output is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, Protocol

import numpy as np

from envs.pipelines.layers import Layers
from envs.pipelines.shares_by_speed import PARTS, shares_by_speed
from envs.plans.mesh import Mesh, Split, mesh_of, prime_factors, shards
from envs.plans.plan import Plan
from envs.plans.schedule import (
    AS_READY,
    WHOLE_BATCH,
    PassOrderDescriptor,
    Schedule,
    Shares,
    Sharing,
    pass_order_of,
)
from graphs.foundation.by_name import Extension
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.problem import Problem

Span = tuple[int, int]  # of layers: the first one, and the first one after it
ONE_F_ONE_B = pass_order_of("early_backward_a")  # DAPPLE's first: as many micro-batches in flight as stages follow


@dataclass(frozen=True)
class LayerStage:
    """Consecutive layers and the devices that have them; several are replicas, or the shards of these."""

    first: int
    end: int  # the first layer that is not in it
    devices: tuple[int, ...]
    shards: int = 1  # of each replica: consecutive devices, which divide the ops
    again: int = 0  # of its layers, the first ones: blocks of them keep only what enters, and are computed again

    @property
    def replicas(self) -> int:
        """How many there are."""
        return len(self.devices) // self.shards

    @property
    def leads(self) -> tuple[int, ...]:
        """The first shard of each replica."""
        return self.devices[:: self.shards]

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of its mesh: those of the replicas, then those of their shards."""
        return (*prime_factors(self.replicas), *prime_factors(self.shards))


def _by_speed(layers: Layers, stage: LayerStage, samples: int) -> Shares:
    """How many parts of `samples`, 0 if unknown, each replica of an undivided stage takes."""
    devices = list(stage.devices)
    if len(devices) == 1 or max(devices) >= layers.on_devices.shape[2]:  # which is refused by `Plan.check`
        return ()
    shared, fixed = (layers.on_devices[:, stage.end] - layers.on_devices[:, stage.first])[:, devices]
    if (shared == shared[0]).all() and (fixed == fixed[0]).all():
        return ()
    parts = max((each for each in range(1, min(samples, PARTS) + 1) if samples % each == 0), default=PARTS)
    if parts < len(devices):
        return ()
    return shares_by_speed(shared / parts, fixed, parts)


class StageSplits(Protocol):
    """Knows how stages are divided, whichever ops are in them; who decides about plans has searched for it."""

    def __call__(self, stage: LayerStage) -> tuple[Split, ...]:
        """(ops,) by axis of the stage's mesh the index that is divided, of all ops of the problem; () for the batch.

        The axes of replicas divide the batch, or nothing.
        """
        ...


@dataclass(frozen=True)
class LayerPipeline:
    """Stages, each of which begins where the one before ends, and how their passes are scheduled.

    Several stages may be on the same devices if the order of passes takes that, such as interleaved.
    """

    stages: tuple[LayerStage, ...]
    micro_batches: int = 1
    order: PassOrderDescriptor = PassOrderDescriptor(ONE_F_ONE_B)  # noqa: RUF009 - a descriptor is made once for all
    """The order of passes (`envs.pass_orders`). A single stage without micro-batches runs what is ready."""
    recompute: tuple[int, ...] = ()
    """Stages that keep only what enters them."""
    sharing: Sharing = "split"
    """Whether replicas of a stage split each micro-batch, or take whole ones in turns."""
    rule: Extension[Any] | None = None
    """The rule by which a device chooses among the ops of a pass; None for the problem's."""

    def plan(self, problem: Problem, layers: Layers, splits: StageSplits | None = None) -> Plan:
        """The plan of a problem that has these layers; `splits` are needed if a stage is divided.

        `Plan.check` does what is checked, but that InputError is raised where stages have no mesh in common.
        """
        if (in_parts := self.in_parts(layers)) is not self:
            return in_parts.plan(problem, layers, splits)
        stage = self.stage_of_unit(layers)[problem.graph.units].tolist()
        devices = tuple(self.stages[number].devices for number in stage)
        mesh, split = self.mesh, self._split(stage, splits)
        if len(self.stages) == 1 and self.micro_batches == 1 and not self.recompute:
            schedule = replace(WHOLE_BATCH, sharing=self.sharing, order=AS_READY, shares=self.shares(problem, layers))
        else:
            schedule = self.schedule(problem, layers, tuple(stage))
        return Plan(devices, self.rule, schedule, split, mesh)

    def in_parts(self, layers: Layers) -> LayerPipeline:
        """The same, whose stages are each computed again or not: blocks that are, and the layers that follow."""
        if not any(stage.again for stage in self.stages):
            return self
        return self.computing_again(self.again(layers))

    def again(self, layers: Layers) -> list[Span]:
        """The spans of layers that are computed again, each as one: stages, and blocks of their first layers."""
        found = list[Span]()
        for number, stage in enumerate(self.stages):
            if number in self.recompute:
                found.append((stage.first, stage.end))
                continue
            cut = min(stage.first + stage.again, stage.end)
            of_blocks = layers.begin[stage.first + 1 : cut].tolist()
            found += pairwise(sorted({stage.first, cut, *(each for each in of_blocks if each > stage.first)}))
        return found

    def computing_again(self, spans: Sequence[Span]) -> LayerPipeline:
        """The same, in which these spans of layers are computed again, and nothing else: each is a stage of its own.

        So it keeps what enters it. No span may be in two stages.
        """
        stages, again = list[LayerStage](), list[int]()
        for stage in self.stages:
            inside = [span for span in spans if stage.first <= span[0] < stage.end]
            bounds = sorted({stage.first, stage.end, *(bound for span in inside for bound in span)})
            again += [len(stages) + bounds.index(first) for first, _ in inside]
            stages += [replace(stage, first=first, end=end, again=0) for first, end in pairwise(bounds)]
        return replace(self, stages=tuple(stages), recompute=tuple(again))

    @property
    def is_divided(self) -> bool:
        """Whether the replicas of a stage have several shards."""
        return any(stage.shards > 1 for stage in self.stages)

    @property
    def is_folded(self) -> bool:
        """Whether a device has several stages."""
        devices = [device for stage in self.stages for device in stage.devices]
        return len(set(devices)) < len(devices)

    @property
    def mesh(self) -> Mesh:
        """The axes of the stages that are divided: of the largest one all, and of others the last ones.

        Raises InputError if these are not the axes of another one.
        """
        divided = [stage for stage in self.stages if stage.shards > 1]
        mesh = max((stage.axes for stage in divided), key=shards, default=())
        for stage in divided:
            if mesh_of(mesh, len(stage.devices)) != stage.axes:
                raise InputError(
                    f"a stage is divided over {' x '.join(map(str, stage.axes))} devices, and another one over "
                    f"{' x '.join(map(str, mesh))}; divide stages such that the axes of the smaller are the last ones "
                    "of the larger"
                )
        return mesh

    def _split(self, stage: list[int], splits: StageSplits | None) -> tuple[Split, ...]:
        """(ops,) what each op of these stages, (ops,), divides; () if no stage is divided."""
        if not self.is_divided:
            return ()
        if splits is None:
            raise InputError("a stage of the pipeline is divided; say by which indices")
        found = [splits(each) if each.shards > 1 else None for each in self.stages]
        return tuple(() if of is None else of[op] for op, of in enumerate(found[number] for number in stage))

    def schedule(self, problem: Problem, layers: Layers, stage: tuple[int, ...]) -> Schedule:
        """The schedule of ops whose stages these are, (ops,)."""
        return Schedule(
            micro_batches=self.micro_batches, stages=stage, order=self.order, recompute=self.recompute,
            sharing=self.sharing, shares=self.shares(problem, layers),
        )  # fmt: skip

    def shares(self, problem: Problem, layers: Layers) -> tuple[Shares, ...]:
        """By stage the shares of its replicas, by their speed where that differs; () for equal ones.

        Stages that follow one another on the same devices have the same.
        """
        if self.sharing != "split" or self.is_divided:
            return ()
        samples = problem.graph.samples // self.micro_batches
        found = list[Shares]()
        for _, several in groupby(self.stages, lambda stage: stage.devices):
            stages = list(several)
            found += [_by_speed(layers, replace(stages[0], end=stages[-1].end), samples)] * len(stages)
        return tuple(found)

    def stage_of_unit(self, layers: Layers) -> Ints:
        """(units,) the stage of each."""
        return np.repeat(np.arange(len(self.stages)), [stage.end - stage.first for stage in self.stages])[
            layers.of_unit
        ]
