"""Black GPipe's partition: a GPipe pipeline whose stages have replicas, with the least bottleneck within the memory.

A stage takes the time of its layers, forward and backward, over its replicas, or twice that of what is sent to it. It
must need less than the memory of the smallest device. Gradients, which GPipe sums up once per step, do not count. In
the published system everything is sent through the host; here it takes the links of the cluster, at their mean speed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline
from envs.plans.placer_result import PlacerResult
from envs.plans.schedule import pass_order_of
from graphs.cluster import Cluster
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.op_groups.layer_names import unit_layers
from graphs.problem import Problem
from placers.contract.whole_plans import accelerators
from placers.pipelines.published.bottleneck import ChainPartition, LayerChain, partition
from placers.pipelines.published.on_devices import layer_stages, micro_batches_of, pipeline_result
from placers.pipelines.stages_in_words import stages_in_words

BY_REQUEST = True  # it goes by what a paper knows, for batches that the user divides


@dataclass(frozen=True)
class BlackGPipe(Named):
    """A pipeline on all devices."""

    divides_batch: ClassVar[bool] = True

    micro_batches: int = 0
    """Equal parts of the batch that follow one another; 0 for eight, or fewer where those do not divide it."""
    order: str = "gpipe"
    """Of the passes."""
    recompute: bool = True
    """Whether stages keep only what enters them, as GPipe does."""
    layers: int = 64
    """The most layers to cut; where there are more units, several together are one."""

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise InputError(f"black_gpipe: layers is {self.layers}; expected at least 1")
        pass_order_of(self.order).loaded()

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002 - nothing to search
        """Without any simulation. Data parallelism if no pipeline fits the memory, which a note says.

        Raises InputError for samples that cannot be divided into the micro-batches.
        """
        devices = accelerators(problem.cluster)
        layers = Layers.of(problem, self.layers, devices, unit_layers(problem.graph))
        micro_batches = micro_batches_of(problem, "black_gpipe", self.micro_batches)
        chain = _chain(problem.cluster, devices, layers, micro_batches)
        limit = float(problem.cluster.memory_bytes[list(devices)].min())
        found = partition(chain, len(devices), limit, shared=problem.graph.samples // micro_batches)
        pipelined = LayerPipeline(
            layer_stages(found.stages, (devices,)), micro_batches, self.order,
            tuple(range(len(found.stages))) if self.recompute and problem.graph.is_training else (),
        )  # fmt: skip
        return pipeline_result(problem, layers, pipelined, self.name, seed, _said(layers, found, micro_batches))


build = BlackGPipe


def _chain(cluster: Cluster, devices: Sequence[int], layers: Layers, micro_batches: int) -> LayerChain:
    """The layers for a micro-batch."""
    pairs, apart = np.ix_(devices, devices), ~np.eye(len(devices), dtype=np.bool_)
    bandwidth = float(cluster.bandwidth[pairs][apart].mean()) if apart.any() else np.inf
    latency = float(cluster.latency[pairs][apart].mean()) if apart.any() else 0.0
    sent = np.maximum(layers.sent, layers.returned) / micro_batches
    seconds = (layers.forward + layers.backward) / micro_batches + layers.forward_fixed + layers.backward_fixed
    return LayerChain(
        seconds, np.where(sent > 0, latency + sent / bandwidth, 0.0), layers.held + layers.kept / micro_batches
    )


def _said(layers: Layers, found: ChainPartition, micro_batches: int) -> str:
    """A sentence on the pipeline; its step is the number of micro-batches and later stages, times the slowest."""
    pieces = [stage.end - stage.first for stage in found.stages]
    stages = stages_in_words(pieces, [stage.replicas for stage in found.stages])
    step = (micro_batches + len(found.stages) - 1) * found.seconds + float(layers.update.max())
    lacking = "" if found.fits else "; no pipeline fits the memory"
    return (
        f"{stages}, {micro_batches} micro-batches: estimated to take {found.seconds:.6g} s for a micro-batch at the "
        f"slowest stage, and {step:.6g} s for a step{lacking}"
    )
