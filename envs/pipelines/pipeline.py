"""LayerPipeline: stages of consecutive layers on sets of devices, what planners and environments decide about.

    layers    0 1 2 | 3 4 5 6 | 7          stages   LayerStage(0, 3, (0,)), LayerStage(3, 7, (1, 2)), ...
    devices     0       1, 2    3                   two replicas of the second stage divide its micro-batches

One stage on all devices is data parallelism, and one stage on one device computes everything there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from envs.pipelines.layers import Layers
from envs.plan import Plan
from envs.schedule import AS_READY, WHOLE_BATCH, Schedule, Sharing
from graphs.op_graph import Ints
from graphs.problem import Problem

ONE_F_ONE_B = "early_backward_a"  # DAPPLE's first order of passes: as many micro-batches in flight as stages follow


@dataclass(frozen=True)
class LayerStage:
    """Consecutive layers and the devices that have them; several are replicas."""

    first: int
    end: int  # the first layer that is not in it
    devices: tuple[int, ...]


@dataclass(frozen=True)
class LayerPipeline:
    """Stages, each of which begins where the one before ends, and how their passes are scheduled.

    Several stages may be on the same devices if the order of passes takes that, such as interleaved.
    """

    stages: tuple[LayerStage, ...]
    micro_batches: int = 1
    order: str = ONE_F_ONE_B
    """The spec of an order of passes (`envs.pass_orders`). A single stage without micro-batches runs what is ready."""
    recompute: tuple[int, ...] = ()
    """Stages that keep only what enters them."""
    sharing: Sharing = "split"
    """Whether replicas of a stage split each micro-batch, or take whole ones in turns."""
    rule: str = ""
    """The rule by which a device chooses among the ops of a pass (`envs.orders`); empty for the problem's."""

    def plan(self, problem: Problem, layers: Layers) -> Plan:
        """The plan of a problem that has these layers. Nothing is checked: `Plan.check` does that."""
        stage = self.stage_of_unit(layers)[problem.graph.units].tolist()
        devices = tuple(self.stages[number].devices for number in stage)
        if len(self.stages) == 1 and self.micro_batches == 1 and not self.recompute:
            return Plan(devices, self.rule, replace(WHOLE_BATCH, sharing=self.sharing, order=AS_READY))
        return Plan(devices, self.rule, self.schedule(tuple(stage)))

    def schedule(self, stage: tuple[int, ...]) -> Schedule:
        """The schedule of ops whose stages these are, (ops,)."""
        return Schedule(
            micro_batches=self.micro_batches, stages=stage, order=self.order, recompute=self.recompute,
            sharing=self.sharing,
        )  # fmt: skip

    def stage_of_unit(self, layers: Layers) -> Ints:
        """(units,) the stage of each."""
        return np.repeat(np.arange(len(self.stages)), [stage.end - stage.first for stage in self.stages])[
            layers.of_unit
        ]
