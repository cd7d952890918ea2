"""A plan is exported by whole modules: each tensor has one place, and what rounding costs is simulated."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import placelab
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from evaluation.commands.arguments import ExportFormat
from evaluation.exports.formats import FORMATS, export_plan
from evaluation.exports.module_keys import ModuleKeys
from graphs.capture.examples import example_of
from graphs.files.load import load_graph
from graphs.foundation.errors import InputError
from graphs.op_groups.whole_modules import WholeModules, tie_modules
from graphs.problem import Problem
from tests.drawn import examples
from tests.envs.placed_models.models import Conv, gpt
from tests.evaluation.row_model import WORDS, Residual, Row, row_on_four, stages_in

ROOT = Path(__file__).resolve().parents[2]


class WithPlaces(nn.Module):
    """Two layers, and tensors that are the model's own: two are read by its own code, and one by the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.zeros(8, 8))
        self.register_buffer("factor", torch.ones(8))
        self.register_buffer("mask", torch.ones(8, 1))
        self.words, self.layers = nn.Embedding(20, 8), nn.ModuleList(Residual() for _ in range(2))

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words) + self.places
        for layer in self.layers:
            x = layer(x * self.mask) if layer is self.layers[0] else layer(x)
        y: Tensor = nn.functional.linear(x * self.factor, self.words.weight)
        return y


def bert() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    model: nn.Module = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=8,
        )
    )  # fmt: skip
    return model


def gpt2() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=3, n_embd=16, n_head=2, vocab_size=40, n_positions=8, use_cache=False, bos_token_id=0, eos_token_id=0
    )
    model: nn.Module = transformers.GPT2LMHeadModel(config)
    return model


MODELS: dict[str, Any] = {
    "row": (Row, WORDS), "bert": (bert, WORDS), "gpt2": (gpt2, WORDS), "gpt": (lambda: gpt()[0], WORDS),
    "conv": (Conv, torch.zeros(4, 3, 8, 8)), "places": (WithPlaces, WORDS),
}  # fmt: skip


@pytest.fixture(scope="module", params=MODELS)
def given_model(request: pytest.FixtureRequest) -> tuple[nn.Module, Problem]:
    make, inputs = MODELS[request.param]
    model = make()
    return model, placelab.place((model, (inputs,)), cluster="p100x3", placer="single_device", groups=None).problem


def random_plan(problem: Problem, seed: int) -> Plan:
    return Plan.of_units(problem, np.random.default_rng(seed).integers(3, size=problem.graph.num_units))


@given(seed=st.integers(0, 1000))
@settings(max_examples=8, deadline=None)
def test_every_tensor_has_one_key_and_its_ops_are_there(given_model: tuple[nn.Module, Problem], seed: int) -> None:
    model, problem = given_model
    written = export_plan(problem, random_plan(problem, seed), model, "device_map")
    found = json.loads(written.text)
    for name in model.state_dict():
        assert len([key for key in found if key == "" or name == key or name.startswith(f"{key}.")]) == 1, name
    own = {name for name, _ in [*model.named_parameters(recurse=False), *model.named_buffers(recurse=False)]}
    assert set(found) <= dict(model.named_modules(remove_duplicate=False)).keys() | own
    written.plan.check(written.problem)
    for call, device in zip(written.problem.graph.calls, written.plan.placement.tolist(), strict=True):
        if call is not None:
            holds = [found[key] for key in found if f"{call.module}.".startswith(f"{key}.") or key == ""]
            assert holds in ([], [device])


@given(seed=st.integers(0, 1000))
@settings(max_examples=8, deadline=None)
def test_code_between_modules_reads_from_one_device(given_model: tuple[nn.Module, Problem], seed: int) -> None:
    model, problem = given_model
    keys = ModuleKeys.of(problem, random_plan(problem, seed), model)
    placement = keys.placed(keys.devices).placement
    graph = problem.graph
    for producer, consumer in graph.edges[~graph.control & (graph.phase[graph.edges] == 0).all(axis=1)].tolist():
        if keys.modules.of_op[consumer] < 0 and keys.modules.of_op[producer] >= 0:
            assert placement[producer] == placement[consumer]


def test_a_plan_of_whole_modules_loses_nothing_and_most_of_the_time_decides() -> None:
    model = Row()
    problem = placelab.place((model, (WORDS,)), cluster="p100x2", placer="single_device", groups=None).problem
    keys = ModuleKeys.of(problem, Plan.of([0] * len(problem.graph)), model)
    whole = keys.placed(np.array([0, 0, 0, 1, 1, 1, 1, 0]))  # words, layers, head, scale
    again = export_plan(problem, whole, model, "device_map")
    assert again.plan.devices == whole.devices
    assert json.loads(again.text) == {
        "words": 0, **{f"layers.{layer}": int(layer > 1) for layer in range(5)}, "head": 1, "scale": 0,
    }  # fmt: skip
    moved = list(whole.placement)
    add = problem.graph.names.index("layers.0/add")
    moved[add] = 1
    moved = [1 if problem.graph.mirror[op] == add else device for op, device in enumerate(moved)]
    assert export_plan(problem, Plan.of(moved), model, "device_map").plan.devices == whole.devices
    for to, text in (
        ("vllm", "VLLM_PP_LAYER_PARTITION=2,3"),
        ("megatron", "Ett|tttL"),
        ("torchtitan", '[["words", "layers.0", "layers.1", "scale"], ["layers.2", "layers.3", "layers.4", "head"]]'),
    ):
        written = export_plan(problem, whole, model, to)
        assert stages_in(to, written.text) == text
        assert written.plan.devices == whole.devices


@given(devices=st.lists(st.integers(0, 3), min_size=5, max_size=5))
@settings(max_examples=examples(20, 8), deadline=None)
def test_layers_of_all_pieces_are_all_layers(devices: list[int]) -> None:
    model = Row()
    problem = row_on_four()
    keys = ModuleKeys.of(problem, Plan.of([0] * len(problem.graph)), model)
    plan = keys.placed(np.array([devices[0], *devices, devices[-1], devices[0]]))
    counts = list(map(int, export_plan(problem, plan, model, "vllm").text.partition("=")[2].split(",")))
    assert sorted(counts) == sorted(devices.count(device) for device in set(devices))
    if len(counts) == 1:
        return
    assert stages_in("megatron", export_plan(problem, plan, model, "megatron").text).count("t") == sum(counts) == 5
    parts = json.loads(stages_in("torchtitan", export_plan(problem, plan, model, "torchtitan").text))
    assert sorted(name for part in parts for name in part) == sorted(keys.keys)
    assert [sum(name.startswith("layers.") for name in part) for part in parts] == counts


@given(seed=st.integers(0, 1000))
@settings(max_examples=4, deadline=None)
def test_a_placement_of_whole_modules_loses_nothing(given_model: tuple[nn.Module, Problem], seed: int) -> None:
    model, problem = given_model
    tied = replace(problem, graph=tie_modules(problem.graph, model))
    plan = random_plan(tied, seed)
    written = export_plan(tied, plan, model, "device_map")
    assert written.plan.devices == plan.devices
    assert simulate(written.problem, written.plan).step_seconds == simulate(tied, plan).step_seconds


@pytest.mark.parametrize(
    ("spec", "units"),
    [
        ("resnet:layers=50,image=64,batch=2", 19), ("llama:layers=2", 5), ("bert:layers=2", 6), ("nmt:layers=2", 4),
        ("vit:layers=2", 5),
    ],
)  # fmt: skip
def test_groups_of_modules_are_placed_by_any_placer(spec: str, units: int) -> None:
    placed = placelab.place(spec, cluster="p100x4", placer="round_robin", groups="modules")
    assert placed.problem.graph.num_units == units
    exported = placelab.export(spec, placed.plan, cluster="p100x4", to="device_map")
    assert exported.cost_seconds == 0.0
    assert exported.rounded.plan.devices == placed.plan.devices
    module, found = example_of(spec).module, json.loads(exported.text)
    for name in module.state_dict():
        assert len([key for key in found if name == key or name.startswith(f"{key}.")]) == 1, name


def test_code_of_a_model_that_reads_its_own_tensors_is_where_these_are() -> None:
    model = WithPlaces()
    problem = placelab.place((model, (WORDS,)), cluster="p100x2", placer="single_device", groups="modules").problem
    graph = problem.graph
    assert WholeModules.of(graph, model).keys == ("places", "factor", "mask", "words", "layers.0", "layers.1")
    unit = dict(zip(graph.names, graph.units.tolist(), strict=True))
    assert unit["words/embedding"] == unit["add"] == unit["mul"] == unit["mm"] == unit["layers.1/add_2"] == 0
    assert unit["layers.0/add_1"] == unit["layers.0.up/addmm"] == 1
    with pytest.raises(InputError, match="a graph has no modules to tie its ops by; give the model"):
        placelab.place(graph, cluster="p100x2", placer="single_device", groups="modules")
    with pytest.raises(InputError, match="a graph has no modules to tie its ops by; give the model"):
        load_graph(graph, groups="modules")
    with pytest.raises(InputError, match="evaluated on a number of op groups"):
        placelab.evaluate("default", groups="modules")


def test_all_formats_are_offered_and_in_the_document() -> None:
    assert get_args(ExportFormat) == FORMATS
    document = (ROOT / "docs/running.md").read_text().partition("\n## Exports\n")[2].partition("\n### ")[0]
    assert re.findall(r"^\| `(\w+)` \|", document, re.MULTILINE) == [*FORMATS]


def test_the_example_of_the_document_and_its_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = (ROOT / "docs/running.md").read_text()
    example = re.findall(r"```python\n(.*?)```", document, re.DOTALL)[-1]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(example, "running.md", "exec"), names)
    exported = names["exported"]
    assert json.loads((tmp_path / "device_map.json").read_text()) == json.loads(exported.text)
    before, after = (simulate(each.problem, each.plan).step_seconds for each in (exported.planned, exported.rounded))
    assert exported.cost_seconds == after - before
    assert exported.to_json()["rounding_seconds"] == after - before


@pytest.mark.parametrize("training", [True, False])
def test_a_plan_for_a_graph_file_is_exported_as_that_for_its_model(tmp_path: Path, training: bool) -> None:
    model, file = (Row(), (WORDS,)), tmp_path / "row.graph.json"
    placelab.capture(model, out=file, training=training)
    keyed = placelab.place(model, cluster="p100x3", placer="metis", groups="modules", training=training)
    assert keyed.problem.graph.is_training == training
    placed = placelab.place(file, cluster="p100x3", placer="metis", out=tmp_path / "row.plan.json")
    assert placed.problem.graph.is_training == training
    for to in ("vllm", "megatron", "llama_cpp", "device_map", "torchtitan", "deepspeed"):
        by_file = placelab.export(file, tmp_path / "row.plan.json", cluster="p100x3", to=to)
        by_model = placelab.export(model, placed.plan, cluster="p100x3", to=to, training=training)
        if to == "device_map":
            assert json.loads(by_file.text) == json.loads(by_model.text)
        elif to != "torchtitan":  # whose parts are in the order of the model's code, and of the graph
            assert by_file.text == by_model.text
        assert by_file.rounded.timeline.step_seconds == by_model.rounded.timeline.step_seconds


def test_a_forward_pass_holds_its_weights_once_and_a_step_is_not_taken_for_one() -> None:
    model = (Row(), (WORDS,))
    placed = placelab.place(model, cluster="p100x2", placer="single_device", training=False, optimizer="adam")
    weights = sum(parameter.numel() for parameter in Row().parameters()) * 4
    assert placed.problem.weight_state_bytes.sum() == weights
    assert placelab.fits(model, cluster="p100x2", training=False).problem.graph.is_training is False
    spec: dict[str, Any] = {"training": False, "groups": 16}
    compared = placelab.compare(["rnnlm:layers=1,steps=2"], clusters="p100x2", placers="single_device", **spec)
    alone = placelab.place("rnnlm:layers=1,steps=2", cluster="p100x2", placer="single_device", **spec)
    assert compared.records[0].step_seconds == alone.timeline.step_seconds
    step = placelab.place(model, cluster="p100x2", placer="single_device").problem.graph
    with pytest.raises(InputError, match=r"'Row:.*' is a training step already; leave out `training=False`"):
        placelab.place(step, cluster="p100x2", placer="single_device", training=False)
    with pytest.raises(InputError, match="a suite has training steps; leave one out"):
        placelab.compare(suite="papers", training=False)


def test_what_cannot_be_exported_gets_one_sentence() -> None:
    model, inputs = (Row(), (WORDS,)), "p100x2"
    problem = placelab.place(model, cluster=inputs, placer="single_device", groups=None).problem
    one = Plan.of([0] * len(problem.graph))
    with pytest.raises(
        InputError, match="device_map takes plans with one device per op, and this plan places ops on 2"
    ):
        placelab.export(model, Plan(((0, 1),) * len(problem.graph)), cluster=inputs, to="device_map")
    with pytest.raises(
        InputError, match="does not say which calls of a model's code its ops come from; give the model"
    ):
        placelab.export(replace(problem.graph, calls=()), one, cluster=inputs, to="device_map")
    with pytest.raises(InputError, match="unknown to 'vlm'; did you mean 'vllm'"):
        placelab.export(model, one, cluster=inputs, to="vlm")  # type: ignore[arg-type]
    flat = nn.Linear(4, 4)
    placed = placelab.place((flat, (torch.ones(2, 4),)), cluster=inputs, placer="single_device", groups=None)
    with pytest.raises(InputError, match="is no row of numbered layers"):
        export_plan(placed.problem, placed.plan, flat, "megatron")
    mixed = placelab.place(model, cluster="cpu_gpu", placer="single_device", groups=None).problem
    keys = ModuleKeys.of(mixed, one, model[0])
    with pytest.raises(InputError, match="runs on a GPU what it puts on the CPU"):
        export_plan(mixed, keys.placed(np.array([0, 0, 0, 1, 1, 1, 1, 0])), model[0], "device_map")
