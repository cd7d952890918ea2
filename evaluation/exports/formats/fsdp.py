"""For PyTorch's FSDP2: which modules fully_shard wraps, and which are recomputed, in lines of Python.

Each block is wrapped by itself, as weights are gathered block by block, and then the model, with what is outside of
blocks, or read by several. Blocks are checkpointed before they are wrapped.

Source: torch.distributed.fsdp.fully_shard and checkpoint_wrapper of PyTorch 2.13.
"""

import json
from collections.abc import Iterator

import numpy as np

from envs.expansion.layout import Layout
from envs.expansion.weight_groups import WeightGroups
from envs.plans.plan import Plan
from evaluation.exports.as_run import Order, PlanAsRun, one_forward_one_backward
from evaluation.exports.degrees import PlanDegrees, recomputed_ops
from evaluation.exports.written import Written
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from graphs.op_groups.layer_names import block_names, named_blocks
from graphs.op_groups.whole_modules import check_calls
from graphs.problem import Problem

_CHECKPOINT = "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper"


def write(problem: Problem, plan: Plan) -> Written:
    """Lines that change `model`, in a process for each device that torchrun has started.

    Raises InputError for a plan of several stages or shards, for one whose replicas hold weights, gradients or both in
    whole, and for a graph that does not know the modules of a model.
    """
    run = PlanAsRun.of(problem, plan, "fsdp", _order)
    graph, degrees = run.problem.graph, run.degrees
    check_calls(graph)
    if degrees.pp > 1 or degrees.cp * degrees.ep * degrees.tp > 1:
        raise InputError(
            "fsdp divides the batch alone, and this plan has several stages or divides ops otherwise; use "
            "`to='torchtitan'` or megatron"
        )
    if degrees.zero < 2:
        raise InputError(
            f"fsdp holds weights and gradients in parts, and this plan has zero={degrees.zero}; give one with zero=2 "
            "or 3, or use `to='deepspeed'` or megatron"
        )
    again = named_blocks(graph)[recomputed_ops(run.problem, run.plan) & (graph.phase == Phase.FORWARD)]
    names = block_names(graph)
    checkpointed = [names[block] for block in np.unique(again).tolist()]
    on = "cpu" if all(run.problem.cluster.devices[each].kind == "cpu" for each in run.plan.devices[0]) else "cuda"
    text = "\n".join(_lines(degrees, on, _wrapped(run.problem, run.plan), checkpointed))
    return Written(text, run.problem, run.plan, (*run.notes, *degrees.unsaid))


def _order(planned: Order, ranks: int, stages: int) -> Order:
    """That of gradients that are accumulated; a pipeline, which is refused, keeps its own."""
    return planned if ranks > 1 else one_forward_one_backward(planned, ranks, stages)


def _wrapped(problem: Problem, plan: Plan) -> list[str]:
    """The blocks that have weights of their own."""
    groups, names = WeightGroups(Layout(problem, plan)), block_names(problem.graph)
    number = np.unique(np.flatnonzero(groups.bytes) % groups.each)  # those of each stage, of which a part may be again
    return [names[each - 1] for each in number.tolist() if each]


def _lines(degrees: PlanDegrees, on: str, wrapped: list[str], checkpointed: list[str]) -> Iterator[str]:
    yield "from torch.distributed.device_mesh import init_device_mesh"
    yield "from torch.distributed.fsdp import fully_shard"
    if checkpointed:
        yield _CHECKPOINT
    yield ""
    if degrees.groups > 1:
        sizes, names = f"({degrees.groups}, {degrees.shard_group})", '("replicate", "shard")'
        yield f'mesh = init_device_mesh("{on}", {sizes}, mesh_dim_names={names})'
    else:
        yield f'mesh = init_device_mesh("{on}", ({degrees.dp},))'
    if checkpointed:
        yield f"for name in {json.dumps(checkpointed)}:"
        yield "    model.set_submodule(name, checkpoint_wrapper(model.get_submodule(name)))"
    yield f"for name in {json.dumps(wrapped)}:"
    yield f"    fully_shard(model.get_submodule(name), mesh=mesh, reshard_after_forward={degrees.zero == 3})"
    yield "fully_shard(model, mesh=mesh, reshard_after_forward=False)"
    if degrees.micro_batches > 1:
        each = f", samples of each: {degrees.samples_at_once}" if degrees.samples else ""
        yield f"# micro-batches of each process for a step of the optimizer: {degrees.micro_batches}{each}"
    if degrees.zero == 2 and degrees.micro_batches > 1:
        yield "# before the backward pass of each: model.set_reshard_after_backward(is_last)"
