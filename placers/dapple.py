"""DAPPLE's planner (Fan et al. 2021): stages of layers, each on several devices, with early backward passes.

Layers are units in topological order, and devices are taken as alike but for the servers that they are in. The plan has
the least step by the paper's equations, or by the formulas of the program that was released with it; the estimate is
said in the notes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from envs.pass_orders import load_pass_order
from envs.placer_result import PlacerResult
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.pipelining.as_plan import as_plan, stage_of_unit
from placers.pipelining.device_policies import Moves
from placers.pipelining.layers import BOUND, Layers
from placers.pipelining.pipeline import Chain, Pipeline
from placers.pipelining.planner import Equations, planned
from placers.pipelining.released import Released, machines_of
from placers.pipelining.servers import Servers

BY_REQUEST = True  # it goes by what a paper knows, for batches that the user divides


@dataclass(frozen=True)
class Dapple(Named):
    """Pipelines with replicated stages."""

    divides_batch: ClassVar[bool] = True

    form: Literal["printed", "corrected", "released"] = "printed"
    """The paper's equations as printed, or with the last backward pass of the pivot; or the released program's."""
    micro_batches: int = 8
    """Equal parts of the batch that follow one another; ours, as the paper gives none."""
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
        if self.micro_batches < 1 or self.layers < 1:
            raise InputError(
                f"dapple: {self.micro_batches} micro-batches and {self.layers} layers; expected at least 1 of each"
            )
        load_pass_order(self.order)

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002 - nothing to search
        """Without any simulation.

        A pipeline that fits the devices' memory is better than one that does not, but for the released form. On more
        than 16 devices they are given out several at a time. Ops that the graph binds to devices are on one each.
        """
        layers, servers = Layers.of(problem, self.layers), Servers.of(problem.cluster)
        fixed = 0 if self.parts else self.micro_batches
        if self.form == "released":
            servers = machines_of(problem.cluster, servers)
            pipeline = Released(layers, tuple(servers.sizes.tolist()), fixed, self.parts).planned()
        else:
            chain = Chain.of(layers, float(problem.cluster.memory_bytes.min()))
            by = Equations(fixed, self.parts, self.stages, self.recompute, self.form == "corrected")
            pipeline, _ = planned(chain, servers.links, Moves.of(tuple(servers.sizes.tolist())), by)
        stage = stage_of_unit(layers, pipeline.stages)
        if problem.allowed is not None:
            return PlacerResult.of_units(problem, stage, self.name, seed, notes=(BOUND,))
        plan = as_plan(
            problem, stage, pipeline.stages, servers.devices, micro_batches=pipeline.micro_batches, order=self.order,
            recompute=self.recompute and problem.graph.is_training,
        )  # fmt: skip
        return PlacerResult(plan, self.name, seed, notes=(_said(pipeline, self.form),))


build = Dapple


def _said(pipeline: Pipeline, form: str) -> str:
    """A sentence on the pipeline."""
    replicas = ":".join(str(stage.replicas) for stage in pipeline.stages)
    layers = ":".join(str(stage.end - stage.first) for stage in pipeline.stages)
    lacking = f", lacking {pipeline.overflow / 2**30:.2f} GiB of memory" if pipeline.overflow > 0 else ""
    return (
        f"stages of {layers} layers on {replicas} devices, {pipeline.micro_batches} micro-batches: {form} form "
        f"estimates a step of {pipeline.seconds:.6g} s{lacking}"
    )
