"""For Megatron-LM's command line: its flags of parallelism, batch and recomputation.

Stages of unequal length are a layout: E is the embedding, t a layer, L the loss, | ends a stage, which may be empty.
The stages of virtual pipeline ranks follow those of all ranks before: of 4 stages the third is on the first rank again,
if --pipeline-model-parallel-size is 2.

Sources: megatron/training/arguments.py of NVIDIA/Megatron-LM at 000c4ac2, for the flags; PipelineParallelLayerLayout in
megatron/core/transformer/pipeline_parallel_layer_layout.py of Megatron Core 0.16.1; _checkpointed_forward in its
transformer_block.py, which by the method `block` recomputes the first layers of each stage.
"""

from collections.abc import Iterator

from torch import nn

from envs.pipelines.shapes import PipelineShape
from envs.plans.plan import Plan
from evaluation.exports.as_run import PlanAsRun
from evaluation.exports.degrees import PlanDegrees
from evaluation.exports.module_keys import ModuleKeys
from evaluation.exports.row import LayerRow
from evaluation.exports.written import Written
from graphs.foundation.errors import InputError
from graphs.problem import Problem

FSDP = {2: "optim_grads", 3: "optim_grads_params"}  # by the stage of ZeRO; of 1 it is the distributed optimizer


def write(problem: Problem, plan: Plan, model: nn.Module) -> Written:
    """A line for each flag, in an array of the shell: `torchrun ... pretrain_gpt.py "${PARALLEL_ARGS[@]}" ...`.

    Raises InputError for stages that do not go to one device after the other, over and over again, and for offloaded
    updates of weights that replicas hold in parts.
    """
    run = PlanAsRun.of(problem, plan, "megatron")
    row, degrees = LayerRow.of(ModuleKeys.of(run.problem, run.plan, model), "megatron", equal=True), run.degrees
    shape = row.shape("megatron", several=True)
    row, notes = _as_recomputed(row, run.notes)
    flags = [*_parallelism(degrees, shape, row.counts), *_batch(degrees), *_zero(degrees), *_recomputation(row)]
    lines = "\n".join(f"    {flag}" for flag in flags)
    processes = degrees.dp * degrees.cp * degrees.tp * shape.ranks
    text = f"# of {processes} processes\nPARALLEL_ARGS=(\n{lines}\n)"
    return row.written(text, (*notes, *degrees.unsaid))


def _parallelism(degrees: PlanDegrees, shape: PipelineShape, counts: list[int]) -> Iterator[str]:
    yield f"--tensor-model-parallel-size {degrees.tp}"
    if degrees.sequence:
        yield "--sequence-parallel"
    if degrees.cp > 1:
        yield f"--context-parallel-size {degrees.cp}"
        yield "--cp-comm-type allgather"
    if degrees.ep > 1:
        yield f"--expert-model-parallel-size {degrees.ep}"
    yield f"--pipeline-model-parallel-size {shape.ranks}"
    if len(set(counts)) > 1:
        yield f"--pipeline-model-parallel-layout 'E{'|'.join('t' * count for count in counts)}L'"
    elif shape.stages > shape.ranks:
        yield f"--num-layers-per-virtual-pipeline-stage {counts[0]}"


def _batch(degrees: PlanDegrees) -> Iterator[str]:
    if degrees.samples:
        yield f"--micro-batch-size {degrees.samples_at_once}"
        yield f"--global-batch-size {degrees.samples}"


def _zero(degrees: PlanDegrees) -> Iterator[str]:
    if degrees.offload:
        if degrees.zero in FSDP:
            raise InputError(
                f"megatron offloads the state of its distributed optimizer, and this plan has zero={degrees.zero}; "
                "give one with zero=1, or use `to='deepspeed'`"
            )
        yield "--optimizer-cpu-offload"
        yield "--use-precision-aware-optimizer"
    if degrees.zero or degrees.offload:
        yield "--use-distributed-optimizer"
        if degrees.groups > 1:
            yield f"--num-distributed-optimizer-instances {degrees.groups}"
    if degrees.zero in FSDP:
        yield "--use-megatron-fsdp"
        yield f"--data-parallel-sharding-strategy {FSDP[degrees.zero]}"
        yield "--no-gradient-accumulation-fusion"
        yield "--ckpt-format fsdp_dtensor"


def _as_recomputed(row: LayerRow, notes: tuple[str, ...]) -> tuple[LayerRow, tuple[str, ...]]:
    """The row as Megatron-LM recomputes it: of each stage as many of the first layers."""
    most = max(map(sum, row.again))
    if not most or all(each == [at < most for at in range(len(each))] for each in row.again):
        return row, notes
    counts = ", ".join(str(sum(each)) for each in row.again)
    note = f"megatron recomputes the first {most} layers of each stage, and the plan {counts} in its stages, or others."
    return row.with_first_again(most), (*notes, note)


def _recomputation(row: LayerRow) -> Iterator[str]:
    if not any(row.recomputed):
        return
    yield "--recompute-granularity full"
    yield f"--recompute-method {'uniform' if all(row.recomputed) else 'block'}"
    yield f"--recompute-num-layers {1 if all(row.recomputed) else max(map(sum, row.again))}"
