"""For DeepSpeed's configuration, ds_config.json: batch, stage of ZeRO, shards and, of a pipeline, its parts.

PipelineModule balances stages by itself; a list of parts, where in the list of layers each stage begins and the last
one ends, is given by a class derived from it, whose _partition_layers sets self.parts and calls self._set_bounds. The
engine keeps what "pipeline" says and reads it not: whoever makes the PipelineModule does.

Sources: deepspeed 0.19.8, of which the keys are in deepspeed/runtime/constants.py, zero/config.py, tensor_parallel/
config.py and get_pipeline_config of config.py; TrainSchedule in pipe/schedule.py runs 1F1B; PipelineEngine in
pipe/engine.py refuses stages of ZeRO above 1.
"""

import json
from itertools import accumulate

import numpy as np
from torch import nn

from envs.plans.plan import Plan
from evaluation.exports.as_run import Order, PlanAsRun, one_forward_one_backward
from evaluation.exports.degrees import PlanDegrees, recomputed_ops
from evaluation.exports.module_keys import ModuleKeys
from evaluation.exports.row import LayerRow
from evaluation.exports.written import Written
from graphs.foundation.errors import InputError
from graphs.problem import Problem


def write(problem: Problem, plan: Plan, model: nn.Module) -> Written:
    """`{"zero_optimization": {"stage": 1}, "pipeline": {"parts": [0, 3, 7], "layers": ["words", ...]}, ...}`.

    The layers are modules as they are called. Raises InputError for a device with several stages, and for a pipeline
    with shards, a stage of ZeRO above 1, or of whose layers some are recomputed, which DeepSpeed has not; and for
    sequences, experts, and groups of replicas below stage 3.
    """
    run = PlanAsRun.of(problem, plan, "deepspeed", _order)
    _check_stages(run.degrees)
    said, notes = _config(run.degrees), (*run.notes, *run.degrees.unsaid)
    if run.degrees.pp == 1:
        if recomputed_ops(run.problem, run.plan).any():
            notes = (*notes, "Which layers are recomputed is in the model's code: deepspeed.checkpointing.checkpoint.")
        return Written(_text(said), run.problem, run.plan, notes)
    _check_pipeline(run.degrees)
    row = LayerRow.of(ModuleKeys.of(run.problem, run.plan, model), "deepspeed")
    said["pipeline"] = {"stages": row.shape("deepspeed").ranks, **_recomputation(row, model), **_parts(row)}
    return row.written(_text(said), notes)


def _order(planned: Order, ranks: int, stages: int) -> Order:
    if stages > ranks:
        raise InputError(
            f"deepspeed takes one stage on each device, and this plan has {stages} on {ranks}; use `to='megatron'` or "
            "torchtitan"
        )
    return one_forward_one_backward(planned, ranks, stages)


def _config(degrees: PlanDegrees) -> dict[str, object]:
    said: dict[str, object] = {}
    if degrees.samples:
        said["train_batch_size"] = degrees.samples
        said["train_micro_batch_size_per_gpu"] = degrees.samples_at_once
    said["gradient_accumulation_steps"] = degrees.micro_batches
    zero: dict[str, object] = {"stage": max(degrees.zero, int(degrees.offload))}  # which is offloaded from 1 on
    if degrees.zero and degrees.groups > 1:
        zero["mics_shard_size"] = degrees.shard_group
    if degrees.offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    said["zero_optimization"] = zero
    if degrees.tp > 1:
        said["tensor_parallel"] = {"autotp_size": degrees.tp}
    return said


def _text(said: dict[str, object]) -> str:
    """JSON, a line for each key."""
    return "{\n" + ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in said.items()) + "\n}"


def _check_stages(degrees: PlanDegrees) -> None:
    if degrees.cp > 1 or degrees.ep > 1 or degrees.sequence:
        raise InputError(
            "deepspeed's configuration says nothing of the sequence and of experts, and this plan divides by them; use "
            "`to='megatron'`"
        )
    if degrees.groups > 1 and degrees.zero in (1, 2):
        raise InputError(
            f"deepspeed holds parts in groups of replicas with stage 3 of ZeRO alone (MiCS), and this plan has zero="
            f"{degrees.zero}; give one with zero=3, or use `to='megatron'`"
        )


def _check_pipeline(degrees: PlanDegrees) -> None:
    if degrees.tp > 1:
        raise InputError(
            "deepspeed has no shards in the stages of a pipeline, and this plan has both; use `to='megatron'` or "
            "torchtitan"
        )
    if degrees.zero > 1:
        raise InputError(
            f"deepspeed's pipelines take stage 1 of ZeRO at most, and this plan has {degrees.zero}; give one with "
            "zero=1, or use `to='torchtitan'`"
        )


def _parts(row: LayerRow) -> dict[str, object]:
    order = np.lexsort((np.arange(len(row.keys.keys)), row.keys.first_op, row.piece))
    layers = [row.keys.keys[number] for number in order.tolist() if number >= row.keys.modules.tensors]
    return {"parts": [0, *accumulate(len(part) for part in row.parts)], "layers": layers}


def _recomputation(row: LayerRow, model: nn.Module) -> dict[str, object]:
    """PipelineModule recomputes every layer by itself, of the classes that it is told."""
    if not any(row.recomputed):
        return {}
    if not all(row.recomputed):
        raise InputError(
            "deepspeed's pipelines recompute all layers or none, and this plan recomputes some; give it another plan, "
            "or use `to='megatron'`"
        )
    classes = {type(model.get_submodule(row.keys.keys[layer])).__name__ for layer in row.layers}
    return {"activation_checkpoint_interval": 1, "checkpointable_layers": sorted(classes)}
