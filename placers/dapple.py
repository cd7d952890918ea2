"""DAPPLE's planner (Fan et al. 2021): stages of layers, each on several devices, with early backward passes.

Layers are units in the order of the forward pass, and devices are taken as alike but for the servers that they are in.
The plan has the least step by the paper's equations, or by the formulas of the program that was released with it; the
estimate is said in the notes. If it is known how many samples a step has, replicas divide those of a micro-batch;
else they need not, as in the paper's plans.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline
from envs.plans.placer_result import PlacerResult
from envs.plans.schedule import pass_order_of
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.op_groups.layer_names import unit_layers
from graphs.problem import Problem
from placers.contract.whole_plans import accelerators
from placers.pipelines.published.dapple_program import DappleProgram, machines_of
from placers.pipelines.published.device_policies import DeviceSets
from placers.pipelines.published.on_devices import layer_stages, micro_batches_of, pipeline_result
from placers.pipelines.published.overlapped import data_parallel_seconds
from placers.pipelines.published.pipeline import Chain, Pipeline
from placers.pipelines.published.planner import Equations, planned
from placers.pipelines.published.servers import Servers
from placers.pipelines.stages_in_words import stages_in_words

BY_REQUEST = True  # it goes by what a paper knows, for batches that the user divides


@dataclass(frozen=True)
class Dapple(Named):
    """Pipelines with replicated stages."""

    divides_batch: ClassVar[bool] = True

    form: Literal["printed", "corrected", "released"] = "printed"
    """The paper's equations as printed, or with the last backward pass of the pivot; or the released program's."""
    micro_batches: int = 0
    """Equal parts of the batch that follow one another; 0 for eight, or fewer where those do not divide it."""
    parts: int = 0
    """Parts of the batch, if a replica computes one at a time; they decide the micro-batches instead."""
    stages: int = 0
    """The most stages; 0 for as many as devices."""
    order: str = "early_backward_a"
    """Of the passes: "early_backward_a", "early_backward_b" or any other."""
    recompute: bool = False
    """Whether all stages keep only what enters them."""
    layers: int = 64
    """The most layers to cut; where there are more units, several together are one."""

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise InputError(f"dapple: layers is {self.layers}; expected at least 1")
        pass_order_of(self.order).loaded()

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002 - nothing to search
        """Without any simulation. Raises InputError for samples that cannot be divided into the micro-batches.

        A pipeline that fits the devices' memory is better than one that does not, but for the released form. On more
        than 16 devices they are given out several at a time. Where only placements make sense, a stage is on a device.
        """
        devices, rival = accelerators(problem.cluster), ""
        layers = Layers.of(problem, self.layers, devices, unit_layers(problem.graph))
        servers = Servers.of(problem.cluster, devices)
        fixed = 0 if self.parts else micro_batches_of(problem, "dapple", self.micro_batches)
        shared = problem.graph.samples // fixed if fixed else 0
        if self.form == "released":
            servers = machines_of(servers)
            sizes = tuple(servers.sizes.tolist())
            pipeline = DappleProgram(layers, sizes, fixed, self.parts, shared=shared).planned()
            rival = f"; of data parallelism, whose all-reduce overlaps: {data_parallel_seconds(layers, sizes):.6g} s"
        else:
            chain = Chain.of(layers, float(problem.cluster.memory_bytes[list(devices)].min()))
            by = Equations(fixed, self.parts, self.stages, self.recompute, self.form == "corrected", shared)
            pipeline, _ = planned(chain, servers.links, DeviceSets.of(tuple(servers.sizes.tolist())), by)
        pipelined = LayerPipeline(
            layer_stages(pipeline.stages, servers.devices), pipeline.micro_batches, self.order,
            tuple(range(len(pipeline.stages))) if self.recompute and problem.graph.is_training else (),
        )  # fmt: skip
        return pipeline_result(problem, layers, pipelined, self.name, seed, _said(pipeline, self.form) + rival)


build = Dapple


def _said(pipeline: Pipeline, form: str) -> str:
    """A sentence on the pipeline."""
    by = "the released program" if form == "released" else f"the equations as {form}"
    pieces = [stage.end - stage.first for stage in pipeline.stages]
    stages = stages_in_words(pieces, [stage.replicas for stage in pipeline.stages])
    lacking = f", lacking {pipeline.overflow / 2**30:.2f} GiB of memory" if pipeline.overflow > 0 else ""
    return f"{stages}, {pipeline.micro_batches} micro-batches: by {by} a step takes {pipeline.seconds:.6g} s{lacking}"
