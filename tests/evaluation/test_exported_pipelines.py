"""Pipelines are exported by whole modules too, and simulated again as the pipelines that they are."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import placelab
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.plans.plan import Plan
from envs.plans.schedule import WHOLE_BATCH, Schedule
from envs.simulation.simulator import simulate
from evaluation.exports.formats import export_plan
from evaluation.exports.module_keys import ModuleKeys
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from tests.drawn import examples
from tests.evaluation.row_model import Row, stages_in

WORDS = torch.zeros(8, 6, dtype=torch.long)
CALLED = ["words", "scale", "layers.0", "layers.1", "layers.2", "layers.3", "layers.4", "head"]
KEYS = ("words", *(f"layers.{layer}" for layer in range(5)), "head", "scale")


@cache
def row() -> tuple[nn.Module, Problem]:
    model = Row()
    return model, placelab.place((model, (WORDS,)), cluster="p100x4", placer="single_device", groups=None).problem


def whole(stage_of_key: list[int], hosts: tuple[int, ...], order: str) -> Plan:
    """A pipeline of whole modules."""
    model, problem = row()
    keys = ModuleKeys.of(problem, Plan.of([0] * len(problem.graph)), model)
    stage = keys.placed(np.array(stage_of_key)).placement
    devices = tuple((hosts[each],) for each in stage)
    return Plan(devices, schedule=Schedule(4, tuple(stage.tolist()), order))


@pytest.mark.parametrize(
    ("hosts", "order", "texts"),
    [
        ((0, 1), "early_backward_a", {
            "vllm": "VLLM_PP_LAYER_PARTITION=2,3", "megatron": "Ett|tttL",
            "deepspeed": '{"parts": [0, 4, 8], "layers": ["words", "scale", "layers.0", "layers.1", "layers.2", '
            '"layers.3", "layers.4", "head"]}',
            "torchtitan": '[["words", "layers.0", "layers.1", "scale"], ["layers.2", "layers.3", "layers.4", "head"]]',
        }),
        ((2, 1, 2, 1), "interleaved", {
            "megatron": "Et|t|tt|tL",
            "torchtitan": '[["words", "layers.0", "scale"], ["layers.1"], ["layers.2", "layers.3"], '
            '["layers.4", "head"]]',
        }),
        *(((3, 1, 1, 3), order, {
            "torchtitan": '[["words", "layers.0", "scale"], ["layers.1"], ["layers.2", "layers.3"], '
            '["layers.4", "head"]]',
        }) for order in ("zb_v", "v_half:in_flight=2")),
    ],
)  # fmt: skip
def test_pipelines_of_whole_modules_lose_nothing(hosts: tuple[int, ...], order: str, texts: dict[str, str]) -> None:
    model, problem = row()
    stages = [0, 0, 0, 1, 1, 1, 1, 0] if len(hosts) == 2 else [0, 0, 1, 2, 2, 3, 3, 0]
    plan = whole(stages, hosts, order)
    seconds = simulate(problem, plan).step_seconds
    mapped = {key: hosts[stage] for key, stage in zip(KEYS, stages, strict=True)}
    assert export_plan(problem, plan, model, "device_map").text == json.dumps(mapped, indent=1)
    for to, text in texts.items():
        written = export_plan(problem, plan, model, to)
        assert stages_in(to, written.text) == text
        assert written.plan == plan
        assert simulate(written.problem, written.plan).step_seconds == seconds
    for to in {"vllm", "megatron", "deepspeed", "torchtitan"} - texts.keys():
        with pytest.raises(InputError, match=f"{to} takes .* and this plan has "):
            export_plan(problem, plan, model, to)


def test_the_order_of_passes_is_written_as_it_is() -> None:
    model, problem = row()
    plan = whole([0, 0, 0, 1, 1, 1, 1, 0], (2, 1), "early_backward_a")
    written = export_plan(problem, plan, None, "schedule_csv")
    assert written.text == "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3"
    assert (written.problem, written.plan) == (problem, plan)
    replicas = tuple((each, each + 2) for each in (0, 1))
    in_parts = replace(plan, devices=tuple(replicas[each[0] - 1] for each in plan.devices))
    in_parts = replace(in_parts, schedule=replace(plan.schedule, zero=3))
    assert export_plan(problem, in_parts, None, "schedule_csv").text == written.text
    with pytest.raises(InputError, match="schedule_csv takes pipelines, and this plan is a device for each op"):
        export_plan(problem, Plan.of(plan.placement), None, "schedule_csv")
    headless = whole([0, 0, 0, 0, 0, 0, 1, 0], (2, 1), "gpipe")
    assert stages_in("megatron", export_plan(problem, headless, model, "megatron").text) == "Ettttt|L"
    with pytest.raises(InputError, match="vllm takes at least one layer on each device"):
        export_plan(problem, headless, model, "vllm")
    with pytest.raises(InputError, match=r"llama_cpp takes op placements only.*--no-training --plans placement"):
        export_plan(problem, plan, model, "llama_cpp")


def test_replicas_are_kept_if_all_stages_have_as_many() -> None:
    model, problem = row()
    alone = whole([0, 0, 0, 1, 1, 1, 1, 0], (0, 1), "early_backward_a")
    plan = replace(alone, devices=tuple(((0, 1), (2, 3))[each] for each in alone.schedule.stages))
    for to, text in (("megatron", "Ett|tttL"), ("deepspeed", json.dumps({"parts": [0, 4, 8], "layers": CALLED}))):
        written = export_plan(problem, plan, model, to)
        assert (stages_in(to, written.text), written.plan) == (text, plan)
    unequal = replace(plan, schedule=replace(plan.schedule, shares=((3, 1),)))
    for to in ("vllm", "device_map", "llama_cpp"):
        for several in (plan, unequal):
            with pytest.raises(
                InputError, match=f"{to} takes .* on 2 devices each; .* --no-training --plans placement"
            ):
                export_plan(problem, several, model, to)
    for to in ("schedule_csv", "torchtitan"):
        with pytest.raises(InputError, match="takes no plan whose replicas have unequal shares of the batch"):
            export_plan(problem, unequal, model, to)
    uneven = replace(alone, devices=tuple(((0,), (2, 3))[each] for each in alone.schedule.stages))
    with pytest.raises(InputError, match="as many replicas of each stage, and those of this plan have 1, 2 devices"):
        export_plan(problem, uneven, model, "torchtitan")
    in_turns = replace(plan, schedule=replace(plan.schedule, sharing="turns"))
    with pytest.raises(InputError, match="whose replicas take micro-batches in turns"):
        export_plan(problem, in_turns, model, "torchtitan")
    everywhere = replace(plan, devices=((0, 1, 2, 3),) * len(problem.graph), schedule=Schedule())
    written = export_plan(problem, everywhere, model, "torchtitan")
    assert "config.parallelism.data_parallel_replicate_degree = 4\n" in written.text
    assert not stages_in("torchtitan", written.text)
    assert simulate(problem, everywhere).step_seconds == simulate(written.problem, written.plan).step_seconds


@given(
    cuts=st.lists(st.integers(1, 19), min_size=1, max_size=3, unique=True), order=st.sampled_from(["gpipe", "zb_h1"])
)
@settings(max_examples=examples(15, 8), deadline=None)
def test_stages_that_cut_modules_are_rounded_and_run_forwards(cuts: list[int], order: str) -> None:
    model, problem = row()
    layers = Layers.of(problem, 40)
    ends = [0, *sorted(cuts), len(layers)]
    stages = tuple(LayerStage(first, end, (number,)) for number, (first, end) in enumerate(zip(ends, ends[1:])))  # noqa: B905, RUF007
    plan = LayerPipeline(stages, 4, order).plan(problem, layers)
    for to in ("device_map", "megatron"):
        try:
            written = export_plan(problem, plan, model, to)
        except InputError as error:
            assert "rounded to whole modules, stage" in str(error)  # noqa: PT017
            continue
        written.plan.check(written.problem)
        if to == "device_map":
            assert written.plan.schedule == WHOLE_BATCH
            said = json.loads(written.text)
            for call, number in zip(written.problem.graph.calls, written.plan.placement.tolist(), strict=True):
                held = [said[key] for key in said if call is not None and f"{call.module}.".startswith(f"{key}.")]
                assert held in ([], [number])
        else:
            stage = written.plan.schedule.stages
            assert written.plan.placement.tolist() == list(stage)
            expected = replace(plan.schedule, stages=(), order="early_backward_a")
            assert replace(written.plan.schedule, stages=()) == expected
            layout = stages_in(to, written.text)
            assert layout.count("t") == 5
            assert layout.count("|") == len(cuts)


def test_accelerate_runs_a_pipeline_as_the_placement_of_its_stages() -> None:
    model, problem = row()
    pipeline = whole([0, 0, 0, 1, 1, 1, 1, 0], (0, 1), "gpipe")
    again = replace(pipeline, schedule=replace(pipeline.schedule, micro_batches=1, recompute=(0,)))
    without_stages = replace(pipeline, schedule=Schedule(micro_batches=2))
    for plan, lost in (
        (pipeline, "the plan's 4 micro-batches"), (again, "activations that are computed again"),
        (without_stages, "the plan's 2 micro-batches"),
    ):  # fmt: skip
        written = export_plan(problem, plan, model, "device_map")
        assert written.plan == Plan.of(pipeline.placement)
        assert f"it is simulated without {lost}." in written.notes[0]
    assert not export_plan(problem, Plan.of(pipeline.placement), model, "device_map").notes


class Circle(nn.Module):
    """A module that is called twice, with another one in between: they cannot be in two stages."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(self.outer(self.inner(self.outer(x))))
        return y


def test_modules_that_feed_each_other_are_in_one_stage() -> None:
    model = Circle()
    problem = placelab.place(
        (model, (torch.ones(4, 8),)), cluster="p100x2", placer="single_device", groups=None
    ).problem
    graph = problem.graph
    first = [int(call is not None and call.module in ("outer", "inner") and call.index == 0) for call in graph.calls]
    stage = [1 - first[graph.mirror[op] if graph.mirror[op] >= 0 else op] for op in range(len(graph))]
    plan = Plan(tuple((each,) for each in stage), schedule=Schedule(2, tuple(stage), "gpipe"))
    plan.check(problem)
    said = json.loads(export_plan(problem, plan, model, "device_map").text)
    assert said["inner"] == said["outer"] == 0
    assert said["last"] == 1


def test_a_stage_without_modules_is_refused() -> None:
    model, problem = row()
    graph = problem.graph
    plan = whole([0, 0, 0, 0, 0, 0, 1, 0], (0, 1), "gpipe")
    loss = int(np.flatnonzero([kind == "loss" for kind in graph.kinds])[0])
    late = {loss, *np.flatnonzero(graph.mirror == loss).tolist()}
    stage = tuple(int(op in late) for op in range(len(graph)))
    alone = Plan(tuple((each,) for each in stage), schedule=replace(plan.schedule, stages=stage))
    with pytest.raises(InputError, match="stage 1 of this plan has none: it has 2 stages for 8 modules"):
        export_plan(problem, alone, model, "device_map")
