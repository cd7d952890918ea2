"""Programs for training are told the degrees of a plan: those that it was asked for, which make the same plan again."""

import json
import re
from dataclasses import make_dataclass, replace
from functools import cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

import placelab
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.plans.plan import Plan
from envs.plans.schedule import Zero
from envs.simulation.simulator import simulate
from evaluation.exports.degrees import PlanDegrees, recomputed_ops
from evaluation.exports.formats import export_plan
from evaluation.exports.written import Written
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import IDEAL, LONGEST_PATH
from placers.parallel import Parallel
from placers.splits.stage_splits import SearchedSplits
from tests.drawn import examples
from tests.evaluation.row_model import Row
from tests.placers.mixtures import SEQUENCE, WIDTH, Model

WORDS = torch.zeros(8, 6, dtype=torch.long)
BLOCKS = 5
PROGRAMS = ("torchtitan", "megatron", "deepspeed")


@cache
def row() -> tuple[nn.Module, Problem]:
    model = Row()
    return model, placelab.place((model, (WORDS,)), cluster="p100x4", placer="single_device", groups=None).problem


def flags(text: str) -> dict[str, str]:
    """The flags of Megatron-LM, by name."""
    lines = re.findall(r"^    (--[\w-]+) ?(.*)$", text, re.MULTILINE)
    return {name: value.strip("'") for name, value in lines}


def written(plan: Plan, to: str) -> str:
    model, problem = row()
    return export_plan(problem, plan, model, to).text


# ---- degrees ---------------------------------------------------------------------------------------------------------


@st.composite
def degrees_of_parallel(draw: st.DrawFn) -> Parallel:
    room = 4  # devices
    degrees = dict[str, Any]()
    for knob in draw(st.permutations(["tp", "cp", "pp", "dp"])):
        degrees[knob] = draw(st.sampled_from([each for each in (1, 2, 4) if each <= room]))
        room //= degrees[knob]
    dp, pp, is_whole = degrees["dp"], degrees["pp"], degrees["tp"] * degrees["cp"] == 1
    interleaved = draw(st.sampled_from([1, 2])) if pp == 2 else 1
    ends = [0, *sorted(draw(st.permutations(range(1, BLOCKS)))[: pp * interleaved - 1]), BLOCKS]
    order = draw(st.sampled_from(["", "gpipe", "zb_h1"] if interleaved == 1 else ["", "zb_v"]))
    stages_of_zero: list[Zero] = [0, 1, 2, 3] if is_whole else [0, 3]
    zero: Zero = draw(st.sampled_from(stages_of_zero)) if dp * degrees["cp"] > 1 else 0
    return Parallel(
        **degrees, sequence=degrees["tp"] > 1 and draw(st.booleans()), micro_batches=draw(st.sampled_from([1, 2, 4])),
        interleaved=interleaved, recompute=draw(st.booleans()), order=order if pp > 1 else "", zero=zero,
        shard_group=draw(st.sampled_from([0, 2])) if zero and dp == 4 and is_whole else 0,
        stages="+".join(str(end - first) for first, end in pairwise(ends)),
    )  # fmt: skip


@given(asked=degrees_of_parallel())
@settings(max_examples=examples(20, 8), deadline=None)
def test_degrees_written_are_those_asked_for_and_make_the_plan_again(asked: Parallel) -> None:
    model, problem = row()
    try:
        plan = asked.place(problem).plan
    except InputError:  # samples, or stages that an order does not take
        assume(False)
    found = PlanDegrees.of(problem, plan, "test")
    same = ("dp", "tp", "sequence", "cp", "ep", "pp", "micro_batches", "zero")
    degrees = {knob: getattr(found, knob) for knob in same}
    assert degrees == {knob: getattr(asked, knob) for knob in same}
    again = Parallel(
        **degrees, interleaved=found.stages // found.pp, shard_group=found.shard_group if found.groups > 1 else 0,
        recompute=bool(recomputed_ops(problem, plan).any()), order=asked.order, stages=asked.stages,
    )  # fmt: skip
    assert again.place(problem).plan == plan
    for to in PROGRAMS:
        try:
            said = export_plan(problem, plan, model, to)
        except InputError as error:
            assert str(error).startswith(to), error  # noqa: PT017
            continue
        assert (said.plan == plan) == (not any("runs passes in the order" in note for note in said.notes))
        assert _said(to, said.text) == [asked.dp, asked.cp, asked.tp, asked.pp, asked.micro_batches]


def _said(to: str, text: str) -> list[int]:
    """Replicas, parts of the sequence, shards, ranks and micro-batches, as a program understands a text."""
    if to == "megatron":
        found = flags(text)
        processes = int(re.findall(r"# of (\d+)", text)[0])
        tp, pp = (int(found[f"--{which}-model-parallel-size"]) for which in ("tensor", "pipeline"))
        cp = int(found.get("--context-parallel-size", "1"))
        dp = processes // tp // cp // pp
        return [dp, cp, tp, pp, int(found["--global-batch-size"]) // int(found["--micro-batch-size"]) // dp]
    if to == "deepspeed":
        said = json.loads(text)
        dp = said["train_batch_size"] // said["train_micro_batch_size_per_gpu"] // said["gradient_accumulation_steps"]
        shards = said.get("tensor_parallel", {}).get("autotp_size", 1)
        return [dp, 1, shards, said.get("pipeline", {}).get("stages", 1), said["gradient_accumulation_steps"]]
    config = torchtitan_config()
    run_lines(text, config)
    said, training = config.parallelism, config.training
    dp = said.data_parallel_replicate_degree * said.data_parallel_shard_degree
    accumulated = training.global_batch_size // training.local_batch_size // dp
    in_pipeline = training.local_batch_size // said.pipeline_parallel_microbatch_size
    batches = in_pipeline if said.pipeline_parallel_degree > 1 else accumulated
    return [dp, said.context_parallel_degree, said.tensor_parallel_degree, said.pipeline_parallel_degree, batches]


# ---- names that programs know ----------------------------------------------------------------------------------------

MEGATRON = {  # add_argument in megatron/training/arguments.py of NVIDIA/Megatron-LM at 000c4ac2
    "--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--pipeline-model-parallel-layout",
    "--num-layers-per-virtual-pipeline-stage", "--micro-batch-size", "--global-batch-size",
    "--use-distributed-optimizer", "--use-megatron-fsdp", "--data-parallel-sharding-strategy",
    "--no-gradient-accumulation-fusion", "--ckpt-format", "--recompute-granularity", "--recompute-method",
    "--recompute-num-layers", "--sequence-parallel", "--context-parallel-size", "--cp-comm-type",
    "--expert-model-parallel-size", "--num-distributed-optimizer-instances", "--optimizer-cpu-offload",
    "--use-precision-aware-optimizer",
}  # fmt: skip
# deepspeed 0.19.8: constants.py, zero/config.py, tensor_parallel/config.py and config.py of deepspeed/runtime
DEEPSPEED: dict[str, set[str] | None] = {
    "train_batch_size": None, "train_micro_batch_size_per_gpu": None, "gradient_accumulation_steps": None,
    "zero_optimization": {"stage", "mics_shard_size", "offload_optimizer"}, "tensor_parallel": {"autotp_size"},
    "pipeline": {"stages", "activation_checkpoint_interval", "checkpointable_layers", "parts", "layers"},
}  # fmt: skip
PARALLELISM: dict[str, Any] = {  # torchtitan 0.3.0: ParallelismConfig of torchtitan/config/configs.py
    "data_parallel_replicate_degree": 1, "data_parallel_shard_degree": -1, "fsdp_reshard_after_forward": "default",
    "tensor_parallel_degree": 1, "enable_sequence_parallel": True, "pipeline_parallel_degree": 1,
    "module_fqns_per_model_part": None, "pipeline_parallel_schedule": "1F1B", "pipeline_parallel_schedule_csv": "",
    "pipeline_parallel_microbatch_size": 1, "context_parallel_degree": 1,
    "context_parallel_load_balancer": "headtail", "expert_parallel_degree": 1,
}  # fmt: skip
TRAINING: dict[str, Any] = {  # TrainingConfig of the same file
    "local_batch_size": 8, "global_batch_size": -1, "enable_cpu_offload": False,
}  # fmt: skip


def torchtitan_config() -> Any:
    """A configuration with torchtitan's names, and none besides, as its dataclasses have slots."""
    parts: dict[str, dict[str, Any]] = {"parallelism": PARALLELISM, "training": TRAINING}
    made = {name: make_dataclass(name, defaults, slots=True)(**defaults) for name, defaults in parts.items()}
    return make_dataclass("Config", [*made, "activation_checkpoint"], slots=True)(**made, activation_checkpoint="")


def run_lines(text: str, config: Any) -> None:
    """What a function of a config_registry does."""
    full = SimpleNamespace(Config=lambda: "full")
    lines = text.replace("from torchtitan.distributed.activation_checkpoint import FullAC", "")
    exec(compile(lines, "torchtitan", "exec"), {"config": config, "FullAC": full})


def some_plans() -> list[Plan]:
    """Plans that together use all that is said."""
    _, problem = row()
    asked = [
        Parallel(dp=4, zero=3, micro_batches=2, recompute=True), Parallel(dp=2, tp=2), Parallel(dp=4, zero=2),
        Parallel(dp=2, pp=2, stages="2+3", micro_batches=2, zero=1, recompute=True),
        Parallel(dp=1, pp=2, stages="1+1+1+2", interleaved=2, micro_batches=4, order="zb_v"),
        Parallel(dp=1, pp=2, stages="2+3", micro_batches=4, order="zb_h2"),
        Parallel(dp=2, tp=2, sequence=True), Parallel(dp=2, cp=2), Parallel(dp=4, zero=3, shard_group=2),
        Parallel(dp=1, pp=2, stages="1+1+1+2", interleaved=2, micro_batches=4),
        *(Parallel(dp=4, zero=zero, offload=True) for zero in (1, 2)),
    ]  # fmt: skip
    return [each.place(problem).plan for each in asked]


@pytest.mark.parametrize("to", PROGRAMS)
def test_names_are_known_to_the_programs(to: str) -> None:
    known = {"megatron": MEGATRON, "deepspeed": {*DEEPSPEED}, "torchtitan": {*PARALLELISM, *TRAINING}}[to]
    seen = set[str]()
    for plan in some_plans():
        try:
            text = written(plan, to)
        except InputError:
            continue
        if to == "megatron":
            seen |= flags(text).keys()
        elif to == "deepspeed":
            said = json.loads(text)
            seen |= said.keys()
            for key, inside in DEEPSPEED.items():
                assert inside is None or {*said.get(key, ())} <= inside
        else:
            run_lines(text, torchtitan_config())  # slots refuse other names
            seen |= {*re.findall(r"^config\.\w+\.(\w+) =", text, re.MULTILINE)}
    assert seen <= known
    assert len(seen) >= 6


def test_recomputation_is_written_for_each_program() -> None:
    everything, pipeline = [some_plans()[number] for number in (0, 3)]
    for plan in (everything, pipeline):
        found = flags(written(plan, "megatron"))
        assert [found[f"--recompute-{which}"] for which in ("granularity", "method", "num-layers")] == [
            "full", "uniform", "1",
        ]  # fmt: skip
    config = torchtitan_config()
    run_lines(written(everything, "torchtitan"), config)
    assert config.activation_checkpoint == "full"
    said = json.loads(written(pipeline, "deepspeed"))["pipeline"]
    assert (said["activation_checkpoint_interval"], said["checkpointable_layers"]) == (1, ["Residual"])
    model, problem = row()
    assert "deepspeed.checkpointing.checkpoint" in export_plan(problem, everything, model, "deepspeed").notes[0]


# ---- what runs otherwise ---------------------------------------------------------------------------------------------


def test_an_order_of_passes_that_a_program_has_not_is_said_and_its_own_simulated() -> None:
    model, problem = row()
    asked = Parallel(dp=1, pp=4, stages="1+1+1+2", micro_batches=8)
    runs = asked.place(problem).plan
    plan = replace(asked, order="zb_h2").place(problem).plan
    for to in ("megatron", "deepspeed"):
        found = export_plan(problem, plan, model, to)
        assert found.notes == (
            f"{to} runs passes in the order early_backward_a (1F1B), and not in that of the plan, which has zb_h2.",
        )
        assert found.plan == runs
        assert simulate(found.problem, found.plan).step_seconds != simulate(problem, plan).step_seconds
    found = export_plan(problem, plan, model, "torchtitan")
    assert found.plan == plan
    assert 'pipeline_parallel_schedule_csv = "passes.csv"' in found.text
    accumulated = Parallel(dp=4, micro_batches=2, order="gpipe").place(problem).plan
    assert export_plan(problem, accumulated, model, "torchtitan").plan.schedule.order.name == "early_backward_a"


def test_orders_with_the_same_passes_are_the_same() -> None:
    model, problem = row()
    plan = Parallel(dp=1, pp=2, stages="2+3", micro_batches=4, order="early_backward_a:in_flight=4").place(problem).plan
    found = export_plan(problem, plan, model, "megatron")
    assert (found.plan, found.notes) == (plan, ())


def test_what_else_a_program_does_in_its_own_way_is_said() -> None:
    model, problem = row()
    plan = Parallel(dp=2, pp=2, stages="2+3", micro_batches=2, recompute=True, recompute_at="late", all_reduce="ring")
    given = replace(plan.place(problem).plan, order=LONGEST_PATH)
    found = export_plan(problem, given, model, "megatron")
    assert found.plan == replace(plan, recompute_at="block", all_reduce="").place(problem).plan
    for note, said in zip(found.notes, ("layers one by one", "order of the model's code", "NCCL"), strict=True):
        assert said in note


def test_first_layers_that_are_recomputed_are_counted_for_each_stage() -> None:
    """The planner's plans: of each stage some layers are a stage of their own, on the same devices."""
    _, problem = row()

    def plan(*cuts: tuple[int, int]) -> Plan:
        layers, stages = Layers.of(problem, 40), list[LayerStage]()
        block = [_block(problem, layers, number) for number in range(len(layers))]
        ends = [0, block.index(2), len(layers)]
        for number, (first, again) in enumerate(cuts):
            until = block.index(first + again) if again else ends[number]
            stages.append(LayerStage(ends[number], ends[number + 1], (number,), again=until - ends[number]))
        return LayerPipeline(tuple(stages), 4).plan(problem, layers)

    found = flags(written(plan((0, 1), (2, 1)), "megatron"))
    assert [found["--recompute-method"], found["--recompute-num-layers"]] == ["block", "1"]
    assert found["--pipeline-model-parallel-layout"] == "Ett|tttL"
    model, _ = row()
    rounded = export_plan(problem, plan((0, 0), (2, 2)), model, "megatron")
    assert "recomputes the first 2 layers of each stage, and the plan 0, 2 in its stages" in rounded.notes[-1]
    assert flags(rounded.text)["--recompute-num-layers"] == "2"
    again = {problem.graph.names[op][:8] for op in np.flatnonzero(recomputed_ops(problem, rounded.plan)).tolist()}
    assert again == {f"layers.{layer}" for layer in (0, 1, 2, 3)}
    with pytest.raises(InputError, match=r"recomputes all layers or none, and this plan recomputes layers.2, layers.3"):
        written(plan((0, 0), (2, 2)), "torchtitan")
    with pytest.raises(InputError, match="pipelines recompute all layers or none"):
        written(plan((0, 0), (2, 2)), "deepspeed")


def _block(problem: Problem, layers: Layers, number: int) -> int:
    """The block of a planner's layer."""
    graph = problem.graph
    in_layer = layers.of_unit[graph.units] == number
    names = [graph.names[op] for op in np.flatnonzero(in_layer).tolist()]
    found = [int(each) for name in names for each in re.findall(r"^layers\.(\d)", name)]
    return min(found, default=BLOCKS if any("head" in name for name in names) else -1)


def test_searched_shards_are_divided_by_the_rule_and_that_is_said() -> None:
    model, problem = row()
    layers = Layers.of(problem, 40)
    splits = SearchedSplits(problem, range(4))
    plan = LayerPipeline((LayerStage(0, len(layers), (0, 1, 2, 3), shards=2),)).plan(problem, layers, splits)
    found = export_plan(problem, plan, model, "megatron")
    assert flags(found.text)["--tensor-model-parallel-size"] == "2"
    ruled = Parallel(dp=2, tp=2).place(problem).plan
    assert found.plan.split == ruled.split
    assert "are divided otherwise in the plan" in found.notes[0]


@pytest.mark.parametrize(
    ("to", "asked", "why"),
    [
        ("torchtitan", Parallel(dp=4, zero=1), "torchtitan holds weights in parts together with optimizer state"),
        ("deepspeed", Parallel(dp=2, pp=2, stages="2+3", micro_batches=2, zero=2), "stage 1 of ZeRO at most"),
        (
            "deepspeed", Parallel(dp=1, pp=2, interleaved=2, stages="1+1+1+2", micro_batches=4, order="v_half"),
            "one stage on each device, and this plan has 4 on 2",
        ),
        ("deepspeed", Parallel(dp=1, tp=2, pp=2, stages="2+3", micro_batches=2), "no shards in the stages"),
        ("fsdp", Parallel(dp=2, tp=2), "fsdp divides the batch alone"),
        ("fsdp", Parallel(dp=4), "fsdp holds what belongs to weights in parts, and this plan has zero=0"),
        ("megatron", Parallel(dp=4, zero=3, offload=True), "offloads the state of its distributed optimizer"),
        ("torchtitan", Parallel(dp=1, offload=True), "torchtitan offloads what it holds in parts"),
        ("megatron", Parallel(shares="3:1", dp=2), "takes no plan whose replicas have unequal shares"),
        ("fsdp", Parallel(shares="3:1", dp=2), "takes no plan whose replicas have unequal shares"),
    ],
)  # fmt: skip
def test_what_a_program_cannot_say_is_refused(to: str, asked: Parallel, why: str) -> None:
    _, problem = row()
    with pytest.raises(InputError, match=why):
        written(asked.place(problem).plan, to)


def test_offloaded_updates_are_written_for_each_program() -> None:
    model, given = row()
    problem = replace(given, cluster=load_cluster("cpu_gpu:gpus=4"), runtime=IDEAL, op_seconds=None)

    def said(to: str, asked: Parallel) -> Written:
        return export_plan(problem, asked.place(problem).plan, model, to)

    for asked, stage in ((Parallel(dp=4, zero=2, offload=True), 2), (Parallel(dp=1, offload=True), 1)):
        zero = json.loads(said("deepspeed", asked).text)["zero_optimization"]
        assert zero == {"stage": stage, "offload_optimizer": {"device": "cpu", "pin_memory": True}}
    sharded = Parallel(dp=4, zero=3, offload=True)
    config = torchtitan_config()
    found = said("torchtitan", sharded)
    run_lines(found.text, config)
    assert config.training.enable_cpu_offload
    lines = said("fsdp", sharded)
    assert lines.text.count("offload_policy=CPUOffloadPolicy()") == 2
    assert "import CPUOffloadPolicy, fully_shard" in lines.text
    for notes in (found.notes, lines.notes):
        assert any("FSDP2 offloads weights and gradients, too" in note for note in notes)
    assert {"--optimizer-cpu-offload", "--use-distributed-optimizer"} <= flags(
        said("megatron", replace(sharded, zero=1)).text
    ).keys()


def test_what_torchtitan_does_besides_is_said() -> None:
    model, problem = row()
    for asked, said in (
        (Parallel(dp=4, zero=2, micro_batches=2), "gathers weights for each micro-batch"),
        (Parallel(dp=2, pp=2, stages="2+3", zero=3, micro_batches=2), "scatter gradients once in a step"),
        (Parallel(dp=2, cp=2), "holds weights in parts over context parallelism's ranks"),
    ):
        assert said in export_plan(problem, asked.place(problem).plan, model, "torchtitan").notes[-1]
    assert not export_plan(problem, Parallel(dp=4, zero=2).place(problem).plan, model, "torchtitan").notes


def test_updates_after_each_micro_batch_are_refused() -> None:
    model, problem = row()
    plan = Parallel(dp=1, pp=2, stages="2+3", micro_batches=4).place(problem).plan
    each = replace(plan, schedule=replace(plan.schedule, update="micro_batch"))
    with pytest.raises(InputError, match="megatron updates weights once in a step, and this plan after each micro-"):
        export_plan(problem, each, model, "megatron")


def test_experts_are_told_from_other_shards() -> None:
    model, inputs = Model(), (torch.randn(8, SEQUENCE, WIDTH), torch.randn(8, SEQUENCE, WIDTH))
    problem = placelab.place((model, inputs), cluster="p100x4", placer="single_device", groups=None).problem
    for asked in (Parallel(dp=4, ep=2), Parallel(dp=2, ep=2), Parallel(dp=2, ep=2, tp=2)):
        try:
            plan = asked.place(problem).plan
        except InputError:
            assert asked.tp > 1  # whose products besides experts are not columns, then rows
            continue
        found = PlanDegrees.of(problem, plan, "test")
        assert (found.dp, found.ep, found.cp, found.tp, found.inside.unlike) == (asked.dp, asked.ep, 1, asked.tp, 0)
