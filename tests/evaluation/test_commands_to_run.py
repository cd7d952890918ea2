"""The lines that run a plan, shown after it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import placelab
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.running.ways import check_can_run
from envs.simulation.simulator import simulate
from evaluation.exports.formats import export_plan
from evaluation.records.formatting import seconds
from evaluation.tables.commands_to_run import commands_to_run
from evaluation.tables.other_plans import OtherPlans
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError
from graphs.runtime import IDEAL
from tests.evaluation.row_model import Row
from tests.evaluation.some_records import to_text
from tests.evaluation.ways_table import KINDS


def test_run_is_offered_for_the_kinds_of_plans_that_it_runs() -> None:
    words = torch.zeros(8, 6, dtype=torch.long)
    problem = placelab.place((Row(), (words,)), cluster="p100x4", placer="single_device", groups=None).problem
    cpu = replace(problem, cluster=load_cluster("cpu_gpu:gpus=4"), runtime=IDEAL, op_seconds=None)
    for kind, asked in KINDS.items():
        on = cpu if asked.offload else problem
        plan = asked.place(on).plan
        plan = Plan(plan.devices, plan.order) if kind == "one device per op" else plan
        lines = commands_to_run(on, PlacerResult(plan), "row.py:model", "p100x4", Path("row.plan.json"))
        try:
            check_can_run(on, plan)
        except InputError:
            runs = False
        else:
            runs = True
        offered = [line for line in lines if line.startswith("placelab run row.py:model row.plan.json --cluster")]
        assert bool(offered) == runs, kind
        assert any("parallelize(model, " in line for line in lines) == plan.is_placement, kind
        assert lines, kind


@pytest.mark.parametrize(
    ("placer", "lines"),
    [
        ("single_device", ["All of it runs on gpu:0: train there as ever."]),
        (
            "fsdp",
            [
                "# this command with --out rnnlm.plan.json writes the plan",
                "placelab run rnnlm:layers=1,steps=2 rnnlm.plan.json --cluster p100x2 --check  # some steps in a "
                "process per device, compared with one",
                "placelab export rnnlm:layers=1,steps=2 rnnlm.plan.json --cluster p100x2 --to fsdp",
            ],
        ),
    ],
)
def test_the_lines_name_what_was_given(placer: str, lines: list[str]) -> None:
    placed = placelab.place("rnnlm:layers=1,steps=2", cluster="p100x2", placer=placer)
    assert list(placed.to_run) == lines


def test_lines_that_would_be_refused_are_not_shown() -> None:
    graph = "rnnlm:layers=1,steps=2"
    cast = placelab.place(graph, cluster="p100x2", placer="data_parallel", precision="bf16")
    assert not any(line.startswith("placelab run ") for line in cast.to_run)
    full = placelab.place(graph, cluster="p100x2", placer="data_parallel", reserve="15.9GiB")
    assert not full.timeline.fits
    assert full.to_run == ()


def test_a_forward_pass_and_another_batch_are_said_again() -> None:
    graph = "rnnlm:layers=2,steps=2"
    placed = placelab.place(graph, cluster="p100x2", placer="human_expert", training=False, batch=4)
    given = f"{graph} rnnlm.plan.json --cluster p100x2 --batch 4 --no-training"
    offered = [line.partition("  #")[0] for line in placed.to_run[1:]]
    assert offered == [f"placelab export {given} --to {to}" for to in ("device_map", "vllm", "llama_cpp")]


def test_a_forward_pass_that_ends_in_a_loss_is_said_to() -> None:
    family, row = "rnnlm:layers=1,steps=2", (Row(), (torch.zeros(8, 6, dtype=torch.long),))
    for graph, training, is_said in ((family, False, True), (family, True, False), (row, False, False)):
        placed = placelab.place(graph, cluster="p100x2", placer="single_device", training=training)
        assert ("The forward pass includes the loss" in to_text(placed, width=200)) == is_said


def test_programs_for_inference_take_the_plans_that_are_offered_to_them() -> None:
    words = torch.zeros(8, 6, dtype=torch.long)
    problem = placelab.place(
        (Row(), (words,)), cluster="p100x4", placer="single_device", training=False, groups=None
    ).problem
    shown = set[str]()
    replicas = "replicas", "replicas with unequal shares"
    for kind in ("one device per op", *replicas, "`tp`", "stages, 1F1B", "stages, `interleaved`"):
        plan = KINDS[kind].place(problem).plan
        plan = Plan(plan.devices, plan.order) if kind == "one device per op" else plan
        lines = commands_to_run(problem, PlacerResult(plan), "row.py:model", "p100x4", Path("row.plan.json"))
        assert any("start it 2 times" in line for line in lines) == kind.startswith("replicas")
        assert any("part of a batch (3:1)" in line for line in lines) == (kind == "replicas with unequal shares")
        formats = [line.partition("--to ")[2].split()[0] for line in lines if line.startswith("placelab export")]
        assert formats, kind
        for to in formats:
            if to != "chakra":
                assert export_plan(problem, plan, Row(), to).text, (kind, to)
        shown |= {*formats}
    assert shown == {"device_map", "vllm", "llama_cpp", "chakra"}


def test_a_plan_that_nothing_runs_names_the_best_that_is_run() -> None:
    words = torch.zeros(8, 6, dtype=torch.long)
    problem = placelab.place((Row(), (words,)), cluster="p100x4", placer="single_device", groups=None).problem
    best, other = (KINDS[kind].place(problem).plan for kind in ("stages of shards", "stages, 1F1B"))
    given = "row.py:model", "p100x4", Path("row.plan.json"), 8
    lines = commands_to_run(problem, PlacerResult(best, runnable=other), *given)
    assert "this command with --plans run --out row.run.plan.json writes it" in lines[-2]
    assert seconds(simulate(problem, other).step_seconds) in lines[-2]
    assert lines[-1].startswith("placelab run row.py:model row.run.plan.json --cluster p100x4 --batch 8 --check")
    beside = OtherPlans.of(simulate(problem, best), PlacerResult(best, runnable=other))
    assert beside is not None
    assert beside.others["the best that `placelab run` runs"].step_seconds == simulate(problem, other).step_seconds
