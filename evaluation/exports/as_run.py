"""A plan as a program for training runs it: in an order of passes of its own, and with what it knows of dividing ops.

What such a program is not told, or does otherwise, is replaced before the plan is rounded, so that the step that is
simulated is the one that will run; a note says what it was:

    order of passes         one that the program has (DeepSpeed and Megatron-LM run 1F1B)
    order of ops            that of the model's code
    what devices divide     as its degrees say (`placers.splits.degrees`)
    recomputed stages       their layers, each by itself
    how gradients add up    NCCL's choice
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from envs.expansion.joined_passes import joined_passes
from envs.expansion.layout import Layout
from envs.pass_orders import PassOrder, Ranks, takes
from envs.pipelines.pipeline import ONE_F_ONE_B
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY, pass_order_of
from evaluation.exports.degrees import PlanDegrees, joined_stages, ranks_of, recomputed_ops
from graphs.foundation.by_name import Extension
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from graphs.op_groups.grouping import untied
from graphs.op_groups.layer_names import named_blocks
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from placers.pipelines.given_stages import pipeline_blocks

INTERLEAVED = pass_order_of("interleaved")

Order = Extension[PassOrder]
Orders = Callable[[Order, int, int], Order]
"""The order of passes that a program runs in place of a plan's, given its ranks and its stages."""


def one_forward_one_backward(planned: Order, ranks: int, stages: int) -> Order:  # noqa: ARG001 - as `Orders`
    """1F1B, or its interleaved form where a rank has several stages."""
    return ONE_F_ONE_B if ranks == stages else INTERLEAVED


@dataclass(frozen=True, eq=False)
class PlanAsRun:
    """A plan as a program runs it."""

    problem: Problem  # without op groups
    plan: Plan
    degrees: PlanDegrees
    notes: tuple[str, ...]  # what was planned otherwise

    @classmethod
    def of(
        cls, problem: Problem, plan: Plan, to: str, orders: Orders = one_forward_one_backward, *,
        whole_blocks: bool = True,
    ) -> PlanAsRun:  # fmt: skip
        """Without a pipeline `whole_blocks` are recomputed, or what the plan says.

        Raises InputError as `PlanDegrees.of`, and for what the program neither runs nor has a like of.
        """
        problem = replace(problem, graph=untied(problem.graph))
        degrees, notes = PlanDegrees.of(problem, plan, to), list[str]()
        plan = _divided_by_rule(plan, degrees, to, notes)
        plan = _recomputed_by_layers(problem, plan, to, notes)
        if whole_blocks and degrees.pp == 1 and plan.schedule.recompute:
            plan = _of_whole_blocks(problem, plan, to, notes)
        plan = _in_order(problem, plan, degrees, to, orders, notes)
        if plan.order not in (None, PROGRAM):
            plan = replace(plan, order=PROGRAM)
            notes.append(f"{to} runs ops in the order of the model's code, and not in the plan's.")
        if plan.schedule.all_reduce not in ("", "nccl"):
            notes.append(f"{to} is not told to add up gradients by {plan.schedule.all_reduce}: NCCL chooses.")
            plan = replace(plan, schedule=replace(plan.schedule, all_reduce=""))
        return cls(problem, plan, degrees, tuple(notes))


def _in_order(
    problem: Problem, plan: Plan, degrees: PlanDegrees, to: str, orders: Orders, notes: list[str]
) -> Plan:  # fmt: skip
    """The plan in the program's order of passes, or in its own if that is the same one."""
    planned, devices = plan.schedule.order, Layout(problem, plan).stage_devices
    is_single = degrees.stages == 1 and degrees.micro_batches == 1  # a pass of each kind
    if plan.is_placement or (is_single and planned == AS_READY):
        return plan
    order = orders(planned, degrees.pp, degrees.stages)
    if _same_passes(planned, order, ranks_of(devices), degrees.micro_batches):
        return plan
    if not takes(order.built, ranks_of(_joined(devices, joined_stages(plan, devices))), degrees.micro_batches):
        names = [problem.cluster.devices[each[0]].name for each in devices]
        raise InputError(
            f"{to} takes stages and micro-batches that the order {order.name} takes, and this plan has its stages on "
            f"{', '.join(names)}, and {degrees.micro_batches} micro-batches; give it one of the placer gpipe or "
            "parallel"
        )
    was = "which has none" if planned == AS_READY else f"which has {planned.name}"
    name = f"{order.name} (1F1B)" if order == ONE_F_ONE_B else order.name
    notes.append(f"{to} runs passes in the order {name}, and not in that of the plan, {was}.")
    return replace(plan, schedule=replace(plan.schedule, order=order))


def _joined(devices: Sequence[tuple[int, ...]], places: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Of each place of a pipeline the devices, given those of each stage and its place."""
    return tuple(dict(zip(places, devices, strict=True)).values())


def _same_passes(planned: Order, order: Order, ranks: Ranks, micro_batches: int) -> bool:
    if planned == order:
        return True
    if planned == AS_READY:
        return False
    try:
        return joined_passes(planned.built, ranks, micro_batches) == joined_passes(order.built, ranks, micro_batches)
    except InputError:
        return False


def _recomputed_by_layers(problem: Problem, plan: Plan, to: str, notes: list[str]) -> Plan:
    schedule = plan.schedule
    if not schedule.recompute or schedule.recompute_at == "block":
        return plan
    if (named_blocks(problem.graph) < 0).all():
        raise InputError(
            f"{to} recomputes layers, and the names of {problem.graph.name!r} show none, as numbers in a container do; "
            "give a plan without recomputation"
        )
    notes.append(f"{to} recomputes layers one by one, where the plan recomputes the part of a stage as a whole.")
    return replace(plan, schedule=replace(schedule, recompute_at="block"))


def _of_whole_blocks(problem: Problem, plan: Plan, to: str, notes: list[str]) -> Plan:
    """A plan of one rank that recomputes blocks, each of which the plan recomputes, or a part of it."""
    graph, again = problem.graph, recomputed_ops(problem, plan)
    named = np.where(graph.phase == Phase.FORWARD, named_blocks(graph), -1)
    some, kept = (np.isin(np.arange(named.max() + 1), named[each & (named >= 0)]) for each in (again, ~again))
    if (some & kept).any():
        notes.append(f"{to} recomputes whole layers, and the plan parts of {(some & kept).sum()} of them.")
    stage = np.cumsum(np.diff(some, prepend=some[0]))
    of_op = stage[pipeline_blocks(problem, to, 1)][graph.units]
    stages = tuple(of_op.tolist()) if stage.any() else ()
    recompute = tuple(np.unique(stage[some]).tolist())
    return replace(plan, schedule=replace(plan.schedule, stages=stages, recompute=recompute))


def _divided_by_rule(plan: Plan, degrees: PlanDegrees, to: str, notes: list[str]) -> Plan:
    """The plan whose ops are divided by the rule of its degrees, and by nothing else."""
    inside = degrees.inside
    if inside.unlike:
        notes.append(
            f"{to} divides ops by the rules of its degrees; {inside.unlike} of {len(inside.split)} are divided "
            "otherwise in the plan."
        )
    return replace(plan, split=inside.split, mesh=inside.mesh)
