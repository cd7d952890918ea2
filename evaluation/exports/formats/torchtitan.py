"""For torchtitan's configuration: lines of Python for a function of its config_registry.

Stages are the modules of each, by name, in their order. They go to one rank after the other, over and over again; with
the schedules ZBVZeroBubble and DualPipeV, to all ranks and back.

Source: torchtitan 0.3.0, of which ParallelismConfig and TrainingConfig are in torchtitan/config/configs.py, and
_pipeline_module_split and _build_pipeline_schedule in torchtitan/distributed/pipeline_parallel.py.
"""

import json
from collections.abc import Iterator

from torch import nn

from envs.pipelines.pipeline import ONE_F_ONE_B
from envs.pipelines.shapes import PipelineShape
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY
from evaluation.exports.as_run import Order, PlanAsRun, one_forward_one_backward
from evaluation.exports.degrees import PlanDegrees
from evaluation.exports.formats import fsdp
from evaluation.exports.module_keys import ModuleKeys
from evaluation.exports.row import LayerRow
from evaluation.exports.written import Written
from graphs.foundation.errors import InputError
from graphs.problem import Problem

V = ("zb_v", "dualpipe_v", "v_half", "v_min")  # orders of passes whose stages go back and forth
SCHEDULES = {
    "gpipe": "GPipe", "early_backward_a": "1F1B", "interleaved": "Interleaved1F1B", "looped_bfs": "LoopedBFS",
    "interleaved_zero_bubble": "InterleavedZeroBubble", "zb_v": "ZBVZeroBubble", "dualpipe_v": "DualPipeV",
}  # fmt: skip
"""By order of passes, the schedule of torch.distributed.pipelining that runs it; others are written pass by pass."""


def write(problem: Problem, plan: Plan, model: nn.Module) -> Written:
    """`config.parallelism.tensor_parallel_degree = 2` and so on: what a function of a config_registry changes.

    Raises InputError for stages that are on other ranks than torchtitan puts them on, for optimizer state alone in
    parts, for experts, and for layers of which some are recomputed.
    """
    run = PlanAsRun.of(problem, plan, "torchtitan", _order)
    degrees, order = run.degrees, run.plan.schedule.order
    order = ONE_F_ONE_B if order == AS_READY else order  # of an op placement, which is one micro-batch
    row = LayerRow.of(ModuleKeys.of(run.problem, run.plan, model), "torchtitan")
    shape = row.shape("torchtitan", several=True, is_v=order.name.partition(":")[0] in V)
    set_to = {**_training(degrees, shape), **_sharding(degrees), "parallelism.tensor_parallel_degree": degrees.tp}
    if degrees.tp > 1:
        set_to["parallelism.enable_sequence_parallel"] = degrees.sequence
    notes = (*run.notes, *degrees.unsaid)
    notes = (*notes, *_gathering(degrees, shape), *fsdp.offloading(degrees))
    if degrees.cp > 1:
        set_to["parallelism.context_parallel_degree"] = degrees.cp
        set_to["parallelism.context_parallel_load_balancer"] = None
        if degrees.zero < 3:
            notes = (*notes, "torchtitan holds weights in parts over context parallelism's ranks; the plan, in whole.")
    if shape.ranks > 1:
        set_to |= _pipeline(degrees, shape, order, row.parts)
        if "parallelism.pipeline_parallel_schedule_csv" in set_to:
            notes = (*notes, "passes.csv is what `to='schedule_csv'` writes.")
    lines = [f"config.{name} = {_literal(value)}" for name, value in set_to.items()]
    return row.written("\n".join([*lines, *_recomputation(row)]), notes)


def _order(planned: Order, ranks: int, stages: int) -> Order:
    """A pipeline's own; gradients that are accumulated on one rank are 1F1B."""
    return planned if ranks > 1 and planned != AS_READY else one_forward_one_backward(planned, ranks, stages)


def _training(degrees: PlanDegrees, shape: PipelineShape) -> dict[str, object]:
    """Of a pipeline the local batch is divided into micro-batches, and else it is one of them."""
    if not degrees.samples:
        return {}
    local = degrees.samples // degrees.dp if shape.ranks > 1 else degrees.samples_at_once
    return {"training.local_batch_size": local, "training.global_batch_size": degrees.samples}


def _sharding(degrees: PlanDegrees) -> dict[str, object]:
    if degrees.ep > 1:
        raise InputError(
            "torchtitan divides experts among ranks that hold weights in parts, and this plan holds others in whole; "
            "use `to='megatron'`"
        )
    if degrees.zero == 1:
        raise InputError(
            "torchtitan holds weights in parts together with optimizer state, and this plan has zero=1; give one with "
            "zero=2 or 3, or use `to='megatron'` or deepspeed"
        )
    if degrees.offload and not degrees.zero:
        raise InputError(
            "torchtitan offloads what it holds in parts, and this plan has zero=0; give one on several devices with "
            "zero=2 or 3, or use `to='deepspeed'`"
        )
    found: dict[str, object] = {
        "parallelism.data_parallel_replicate_degree": degrees.groups if degrees.zero else degrees.dp,
        "parallelism.data_parallel_shard_degree": degrees.shard_group if degrees.zero else 1,
    }
    if degrees.zero:
        found["parallelism.fsdp_reshard_after_forward"] = "always" if degrees.zero == 3 else "never"
    if degrees.offload:
        found["training.enable_cpu_offload"] = True
    return found


def _gathering(degrees: PlanDegrees, shape: PipelineShape) -> Iterator[str]:
    """What of weights and gradients in parts is done more or less often than is simulated."""
    if degrees.micro_batches == 1 or degrees.zero < 2:
        return
    if shape.ranks > 1:
        yield "PyTorch's pipelines scatter gradients once in a step, and the simulated plan after each micro-batch."
    elif degrees.zero == 2:
        yield "torchtitan gathers weights for each micro-batch, and the simulated plan once in a step."


def _pipeline(degrees: PlanDegrees, shape: PipelineShape, order: Order, parts: list[list[str]]) -> dict[str, object]:
    several = "ZBVZeroBubble" if shape.is_v else "Interleaved1F1B"  # only where stages go, if there is a file
    found: dict[str, object] = {"parallelism.pipeline_parallel_degree": shape.ranks}
    if order.name in SCHEDULES:
        found["parallelism.pipeline_parallel_schedule"] = SCHEDULES[order.name]
    else:
        found["parallelism.pipeline_parallel_schedule"] = "1F1B" if shape.stages == shape.ranks else several
        found["parallelism.pipeline_parallel_schedule_csv"] = "passes.csv"
    if degrees.samples:
        found["parallelism.pipeline_parallel_microbatch_size"] = degrees.samples_at_once
    return found | {"parallelism.module_fqns_per_model_part": parts}


def _recomputation(row: LayerRow) -> list[str]:
    if not any(row.recomputed):
        return ["config.activation_checkpoint = None"]
    if not all(row.recomputed):
        some = ", ".join(row.keys.keys[layer] for layer, again in zip(row.layers, row.recomputed, strict=True) if again)
        raise InputError(
            f"torchtitan recomputes all layers or none, and this plan recomputes {some}; give it another plan, or use "
            "`to='fsdp'` or megatron"
        )
    return [
        "from torchtitan.distributed.activation_checkpoint import FullAC",
        "config.activation_checkpoint = FullAC.Config()",
    ]


def _literal(value: object) -> str:
    return json.dumps(value) if isinstance(value, list | str) else repr(value)
