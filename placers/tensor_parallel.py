"""Tensor parallelism by Megatron-LM's rule (Shoeybi et al. 2019): of two products the columns, then the rows.

The experts' answer for transformers, without any search: in attention and in the feed-forward part each device has
some heads, and some of the inner features. Outputs are added up over devices once per part and pass. All else every
device does. The devices of a server do so together; servers divide the batch, and add up gradients.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from envs.plans.mesh import length
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from graphs.foundation.by_name import Named
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.pipelines.published.servers import Servers
from placers.splits.axes import along_batch, over_mesh, where_none
from placers.splits.bucket_elimination import least
from placers.splits.column_row import most_columns_and_rows
from placers.splits.described_step import split_graph_of
from placers.splits.mesh import prices_of_links
from placers.splits.options import SplitRules, Splitting
from placers.splits.pricing import Pricing
from placers.splits.split_graph import NONE
from placers.splits.undivided import first_devices, on_one_device, why_undivided

BY_REQUEST = True  # the experts' answer for one family of networks


@dataclass(frozen=True)
class TensorParallel(Named):
    """Columns and rows of weights within a server, the batch between servers."""

    divides_batch: ClassVar[bool] = True

    devices: int = 0
    """How many devices, the first ones; 0 for all. CPUs are used only if there is nothing else."""
    others: Literal["", "whole", "batch"] = ""
    """What shards do with all other ops: each does the whole, as in Megatron-LM, or its part of the batch; "" for what
    is estimated to take less."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """Without any simulation. Data parallelism if no two products follow one another, which a note says.

        All on one device if nothing can be divided, which a note says as well. Raises InputError for more devices than
        there are.
        """
        devices = first_devices(problem, "tensor_parallel", self.devices)
        if reason := why_undivided(problem, devices):
            return on_one_device(problem, reason, self.name, seed, budget)
        servers = Servers.of(problem.cluster, devices)
        sizes = set(servers.sizes.tolist())
        most = sizes.pop() if len(sizes) == 1 else len(devices)
        shards, by = most_columns_and_rows(problem.graph, (each for each in range(2, most + 1) if most % each == 0))
        ordered = tuple(device for server in servers.devices for device in server)
        if not any(by):
            plan = _plan(problem.graph, by, ordered, 1, "batch")
            note = "tensor_parallel: no matrix product follows another whose columns can be divided: only the batch is."
            return PlacerResult(plan, self.name, seed, notes=(note,))
        plans = {each: _plan(problem.graph, by, ordered, shards, each) for each in ("whole", "batch")}
        estimates = {each: _seconds(problem, plan) for each, plan in plans.items() if self.others in ("", each)}
        others = min(estimates, key=estimates.__getitem__)
        plan, said = plans[others], "are divided by the batch" if others == "batch" else "run on each of them"
        note = (
            f"tensor_parallel: a mesh of {' x '.join(map(str, plan.mesh))} devices, of which {shards} divide the "
            f"weights among them, and other ops {said}; estimated to take {estimates[others]:.6g} s in a step."
        )
        return PlacerResult(plan, self.name, seed, notes=(note,))


build = TensorParallel


def _plan(
    graph: OpGraph, by: tuple[str, ...], devices: tuple[int, ...], shards: int, others: Literal["whole", "batch"]
) -> Plan:
    replicas = len(devices) // shards
    inner = where_none(by, along_batch(graph, len(devices))) if others == "batch" else by
    split, mesh = over_mesh(graph, ((replicas, along_batch(graph, replicas)), (shards, inner)))
    return Plan((devices,) * len(graph), split=split, mesh=mesh)


def _seconds(problem: Problem, plan: Plan) -> float:
    """What the plan is estimated to take, computing and moving one after the other, with the best layouts."""
    mesh = tuple(map(length, plan.mesh))
    splitting = Splitting(split_graph_of(problem, coarsened=False, steps=False), mesh, SplitRules(replicas=True))
    pricing = Pricing(splitting, prices_of_links(problem.cluster, plan.devices[0], mesh))
    by = [
        (NONE,) * len(mesh) if op.as_updated else split or (op.batch,) * len(mesh)
        for split, op in zip(plan.split, splitting.graph.ops, strict=True)
    ]
    options = [
        several if first.is_layout else [by[first.number]]
        for several, (first, *_) in zip(splitting.joint(), splitting.variables, strict=True)
    ]
    return least(pricing.costs(options)).cost
