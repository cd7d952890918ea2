"""Black GPipe's partition: a GPipe pipeline whose stages have replicas, with the least bottleneck within the memory.

A stage takes the time of its layers, forward and backward, over its replicas, or twice that of what is sent to it. It
must need less than the memory of the smallest device. Gradients, which GPipe sums up once per step, do not count. In
the published system everything is sent through the host; here it takes the links of the cluster, at their mean speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from envs.pass_orders import load_pass_order
from envs.placer_result import PlacerResult
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.pipelining.as_plan import as_plan, stage_of_unit
from placers.pipelining.bottleneck import LayerChain, Partition, partition
from placers.pipelining.layers import BOUND, Layers

BY_REQUEST = True  # it goes by what a paper knows, for batches that the user divides


@dataclass(frozen=True)
class BlackGPipe(Named):
    """A pipeline on all devices."""

    divides_batch: ClassVar[bool] = True

    micro_batches: int = 8
    """Equal parts of the batch that follow one another; ours, as the number is the user's in the paper."""
    order: str = "gpipe"
    """Of the passes."""
    recompute: bool = True
    """Whether stages keep only what enters them, as GPipe does."""
    layers: int = 64
    """The most layers to cut; where there are more units, several together are one."""

    def __post_init__(self) -> None:
        if self.micro_batches < 1 or self.layers < 1:
            raise InputError(
                f"black_gpipe: {self.micro_batches} micro-batches and {self.layers} layers; expected at least 1 of each"
            )
        load_pass_order(self.order)

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002 - nothing to search
        """Without any simulation. Data parallelism if no pipeline fits the memory, which a note says."""
        layers, machines = Layers.of(problem, self.layers), len(problem.cluster)
        chain = _chain(problem, layers, self.micro_batches)
        found = partition(chain, machines, float(problem.cluster.memory_bytes.min()))
        stage = stage_of_unit(layers, found.stages)
        if problem.allowed is not None:
            return PlacerResult.of_units(problem, stage, self.name, seed, notes=(BOUND,))
        plan = as_plan(
            problem, stage, found.stages, (range(machines),), micro_batches=self.micro_batches, order=self.order,
            recompute=self.recompute and problem.graph.is_training,
        )  # fmt: skip
        return PlacerResult(plan, self.name, seed, notes=(self._said(layers, found),))

    def _said(self, layers: Layers, found: Partition) -> str:
        """A sentence on the pipeline; its step is the number of micro-batches and later stages, times the slowest."""
        replicas = ":".join(str(stage.replicas) for stage in found.stages)
        cut = ":".join(str(stage.end - stage.first) for stage in found.stages)
        step = (self.micro_batches + len(found.stages) - 1) * found.seconds + float(layers.update.max())
        lacking = "" if found.fits else "; no pipeline fits the memory"
        return (
            f"stages of {cut} layers on {replicas} devices, {self.micro_batches} micro-batches: a micro-batch takes "
            f"{found.seconds:.6g} s at the slowest stage, a step about {step:.6g} s{lacking}"
        )


build = BlackGPipe


def _chain(problem: Problem, layers: Layers, micro_batches: int) -> LayerChain:
    """The layers for a micro-batch."""
    apart = ~np.eye(len(problem.cluster), dtype=np.bool_)
    bandwidth = float(problem.cluster.bandwidth[apart].mean()) if apart.any() else np.inf
    latency = float(problem.cluster.latency[apart].mean()) if apart.any() else 0.0
    sent = np.maximum(layers.sent, layers.returned) / micro_batches
    seconds = (layers.forward + layers.backward) / micro_batches + layers.forward_fixed + layers.backward_fixed
    return LayerChain(
        seconds, np.where(sent > 0, latency + sent / bandwidth, 0.0), layers.held + layers.kept / micro_batches
    )
