"""For PyTorch's FSDP2: which modules fully_shard wraps, and which are recomputed, in lines of Python.

Blocks are wrapped one by one, as weights are gathered, and then the model, with what is outside of blocks, or read by
several: as `placelab run` does (`envs.running.sharded`). What is recomputed is checkpointed before.

Source: torch.distributed.fsdp.fully_shard and checkpoint_wrapper of PyTorch 2.13.
"""

import json
from collections.abc import Iterator, Sequence

from torch import nn

from envs.plans.plan import Plan
from envs.running.sharded.sharded_blocks import checkpointed_modules, sharded_blocks
from evaluation.exports.as_run import Order, PlanAsRun, one_forward_one_backward
from evaluation.exports.degrees import PlanDegrees
from evaluation.exports.written import Written
from graphs.foundation.errors import InputError
from graphs.op_groups.whole_modules import check_calls
from graphs.problem import Problem

_CHECKPOINT = "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper"


def write(problem: Problem, plan: Plan, model: nn.Module) -> Written:
    """Lines that change `model`, in a process for each device that torchrun has started.

    Raises InputError for a plan of several stages or shards, for one whose replicas hold all in whole, and for a graph
    that does not know the modules of a model.
    """
    run = PlanAsRun.of(problem, plan, "fsdp", _order, whole_blocks=False)
    _check(run)
    try:
        again = checkpointed_modules(run.problem, run.plan, model)
    except InputError:  # of no module
        run = PlanAsRun.of(problem, plan, "fsdp", _order)
        again = checkpointed_modules(run.problem, run.plan, model)
    name = {module: each for each, module in model.named_modules()}
    wrapped = [name[each] for each in sharded_blocks(run.problem.graph, model)]
    on = "cpu" if all(run.problem.cluster.devices[each].kind == "cpu" for each in run.plan.devices[0]) else "cuda"
    text = "\n".join(_lines(run.degrees, on, wrapped, [name[each] for each in again]))
    return Written(text, run.problem, run.plan, (*run.notes, *run.degrees.unsaid, *offloading(run.degrees)))


def offloading(degrees: PlanDegrees) -> Iterator[str]:
    """What of offloaded updates FSDP2 does otherwise than is simulated."""
    if degrees.offload:
        yield (
            "FSDP2 offloads weights and gradients, too: it sends weights to the device whenever they are gathered, and "
            "gradients from it for each micro-batch; the simulated plan sends both once in a step."
        )


def _order(planned: Order, ranks: int, stages: int) -> Order:
    """That of gradients that are accumulated; a pipeline, which is refused, keeps its own."""
    return planned if ranks > 1 else one_forward_one_backward(planned, ranks, stages)


def _check(run: PlanAsRun) -> None:
    degrees = run.degrees
    check_calls(run.problem.graph)
    if degrees.pp > 1 or degrees.cp * degrees.ep * degrees.tp > 1:
        raise InputError(
            "fsdp divides the batch alone, and this plan has several stages or divides ops otherwise; use "
            "`to='torchtitan'` or megatron"
        )
    if not degrees.zero:
        raise InputError(
            "fsdp holds what belongs to weights in parts, and this plan has zero=0; give one with zero=1, 2 or 3, or "
            "use `to='deepspeed'` or megatron"
        )


def _lines(degrees: PlanDegrees, on: str, wrapped: Sequence[str], checkpointed: Sequence[str]) -> Iterator[str]:
    yield "from torch.distributed.device_mesh import init_device_mesh"
    yield f"from torch.distributed.fsdp import {'CPUOffloadPolicy, ' * degrees.offload}fully_shard"
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
    policy = ", offload_policy=CPUOffloadPolicy()" * degrees.offload
    if wrapped:
        yield f"for name in {json.dumps(wrapped)}:"
        again = f"mesh=mesh, reshard_after_forward={degrees.zero == 3}{policy}"
        yield f"    fully_shard(model.get_submodule(name), {again})"
    yield f"fully_shard(model, mesh=mesh, reshard_after_forward=False{policy})"
    if degrees.micro_batches > 1:
        yield from _of_micro_batches(degrees)


def _of_micro_batches(degrees: PlanDegrees) -> Iterator[str]:
    """What is gathered, scattered and added up once in a step, and not for each micro-batch."""
    each = f", samples of each: {degrees.samples_at_once}" if degrees.samples else ""
    yield f"# micro-batches of each process for a step of the optimizer: {degrees.micro_batches}{each}"
    once = [
        *(["set_requires_gradient_sync"] if degrees.zero == 1 else []),
        *(["set_requires_all_reduce"] if degrees.groups > 1 else []),
        *(["set_reshard_after_backward"] if degrees.zero < 3 else []),
    ]
    if once:
        yield "def begin_micro_batch(is_last):"
        yield from (f"    model.{name}(is_last)" for name in once)
