"""PipeTransformer's plan (He et al. 2021): several short pipelines for the layers of a model that are not frozen yet.

Frozen layers (`graphs.transforms.freezing`) run on the first device of each pipeline, and only forward. The rest is
balanced by parameters, and a pipeline has as few devices as keep its largest stage no larger than it was before layers
froze. All devices have pipelines, which are replicas and sum up their gradients. Balanced by time, which is ours,
frozen layers are spread over the pipeline like all others.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from envs.costs.costs import unit_seconds
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import WHOLE_BATCH, Schedule, pass_order_of
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.op_groups.coarsening import summed
from graphs.problem import Problem
from placers.contract.whole_plans import accelerators, check_divides, most_that_divide, why_placements_only
from placers.pipelines.cutting.balance import least_partition
from placers.pipelines.published.auto_dp import groups
from placers.pipelines.published.auto_pipe import balance, micro_batches, shortened, stage_sizes
from placers.pipelines.published.servers import Servers
from placers.pipelines.published.sub_layers import SubLayers

BY_REQUEST = True  # it goes by what a paper knows: sizes of sub-layers, and pipelines inside servers


@dataclass(frozen=True)
class PipeTransformer(Named):
    """Pipelines of the layers that are still trained, as short as they may be, and as many as there are devices for."""

    divides_batch: ClassVar[bool] = True

    first: int = 0
    """Devices of a pipeline while all layers are trained; 0 for those of a server, or fewer for fewer sub-layers."""
    devices: int = 0
    """Devices of a pipeline now; 0 for as few as AutoPipe takes."""
    pipelines: int = 0
    """How many pipelines there are; 0 for as many as there are devices for (AutoDP)."""
    micro_batches: int = 0
    """Micro-batches of a step; 0 for the number that the paper takes, or fewer where that does not divide the batch."""
    balance: Literal["parameters", "time"] = "parameters"
    """What is balanced over the stages of a pipeline."""
    order: str = "gpipe"
    """The order of passes (`envs.pass_orders`)."""

    def __post_init__(self) -> None:
        for knob in ("first", "devices", "pipelines", "micro_batches"):
            if getattr(self, knob) < 0:
                raise InputError(f"pipetransformer: {knob} is {getattr(self, knob)}; expected at least 0")
        pass_order_of(self.order).loaded()

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002 - nothing to search
        """Without any simulation. Where only placements make sense, one pipeline without micro-batches.

        Raises InputError for pipelines that the devices, and micro-batches that the samples, cannot be divided into.
        """
        layers, usable = SubLayers.of(problem), accelerators(problem.cluster)
        first = self.first or math.gcd(*Servers.of(problem.cluster, usable).sizes.tolist())
        while not self.first and first > len(layers.sizes) and first % 2 == 0:
            first //= 2  # each device is to have something
        length = self.devices or self._length(layers, first)
        stage = self._stages(layers, length) if self.balance == "parameters" else _by_time(problem, layers, length)
        if reason := why_placements_only(problem):
            note = f"pipetransformer: stages without micro-batches or replicas, since {reason}."
            return PlacerResult.of_units(problem, np.array(usable)[stage], self.name, seed, notes=(note,))
        of_pipelines = groups(len(usable), first, length).devices
        pipelines = self.pipelines or len(of_pipelines)
        if pipelines > len(of_pipelines):
            raise InputError(
                f"pipetransformer: {pipelines} pipelines of {length} devices need more than the {len(usable)} of "
                f"{problem.cluster.name!r}; choose at most {len(of_pipelines)}"
            )
        spread = [of_pipelines[number * len(of_pipelines) // pipelines] for number in range(pipelines)]
        wanted = micro_batches(length)
        count = self.micro_batches or most_that_divide(problem.graph, wanted, pipelines)
        check_divides(problem.graph, "pipetransformer", count, pipelines)
        several = [tuple(usable[each[place]] for each in spread) for place in range(length)]
        of_op = stage[problem.graph.units].tolist()
        schedule = Schedule(count, tuple(of_op), self.order)
        if length == count == 1:
            schedule = WHOLE_BATCH
        note = (
            f"{_counted(pipelines, 'pipeline')} of {_counted(length, 'device')}, {_counted(count, 'micro-batch', 'es')}"
        )
        return PlacerResult(
            Plan(tuple(several[each] for each in of_op), schedule=schedule), self.name, seed, notes=(note,)
        )

    def _length(self, layers: SubLayers, first: int) -> int:
        """Devices of a pipeline, by AutoPipe."""
        sizes, trained = layers.sizes.tolist(), layers.trained[layers.first_trained :].tolist()
        if not layers.first_trained:
            return first
        return shortened(trained, first, max(stage_sizes(sizes, first)))

    def _stages(self, layers: SubLayers, length: int) -> Ints:
        """(units,) the stage of each unit, numbered without empty ones. What is frozen is in the first."""
        start = layers.first_trained
        counts = [count for count in balance(layers.trained[start:].tolist(), length) if count]
        counts[0] += start
        stage: Ints = np.repeat(np.arange(len(counts)), counts)[layers.of_unit]
        return stage


build = PipeTransformer


def _counted(count: int, what: str, several: str = "s") -> str:
    return f"{count} {what}{several if count != 1 else ''}"


def _by_time(problem: Problem, layers: SubLayers, length: int) -> Ints:
    """(units,) the stage of each unit, such that the largest takes least; at most as many as there are sub-layers."""
    devices = list(accelerators(problem.cluster))
    seconds = summed(layers.of_unit, unit_seconds(problem)[:, devices].mean(axis=1), len(layers.sizes))
    return least_partition(seconds, min(length, len(seconds)))[layers.of_unit]
