"""A plan is exported by whole modules: each tensor has one place, and what rounding costs is simulated."""

import json
import re
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import placelab
from envs.plan import Plan
from envs.simulation.simulator import simulate
from evaluation.commands.arguments import ExportFormat
from evaluation.commands.exporting import WITHOUT_MODEL
from evaluation.exports.formats import OF_MODULES, OF_PLANS, export_plan
from evaluation.exports.module_keys import ModuleKeys
from graphs.capture.examples import example_of
from graphs.foundation.errors import InputError
from graphs.load import load_cluster, load_graph
from graphs.problem import Problem
from graphs.whole_modules import WholeModules, tie_modules
from tests.envs.placed_models.models import Conv, gpt

ROOT = Path(__file__).resolve().parents[2]


class Residual(nn.Module):
    """A layer whose own code adds what it reads to what its parts make."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.down(self.up(x))
        return y


class Row(nn.Module):
    """An embedding, five layers and a head that has its weight; the last module is called first."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.layers = nn.ModuleList(Residual() for _ in range(5))
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.words.weight
        self.scale = nn.Tanh()

    def forward(self, words: Tensor) -> Tensor:
        x = self.scale(self.words(words)) * 2
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.head(x)
        return logits


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


WORDS = torch.zeros(2, 8, dtype=torch.long)
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
        assert written.text == text
        assert written.plan.devices == whole.devices


@given(devices=st.lists(st.integers(0, 3), min_size=5, max_size=5))
@settings(max_examples=20, deadline=None)
def test_layers_of_all_pieces_are_all_layers(devices: list[int]) -> None:
    model = Row()
    problem = _row_on_four()
    keys = ModuleKeys.of(problem, Plan.of([0] * len(problem.graph)), model)
    plan = keys.placed(np.array([devices[0], *devices, devices[-1], devices[0]]))
    counts = list(map(int, export_plan(problem, plan, model, "vllm").text.partition("=")[2].split(",")))
    assert sorted(counts) == sorted(devices.count(device) for device in set(devices))
    assert export_plan(problem, plan, model, "megatron").text.count("t") == sum(counts) == 5
    parts = json.loads(export_plan(problem, plan, model, "torchtitan").text)
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
        load_graph("mine.graph.json", groups="modules")
    with pytest.raises(InputError, match="evaluated on a number of op groups"):
        placelab.evaluate("default", groups="modules")


@pytest.mark.parametrize(
    ("cluster", "places", "text", "rounded"),
    [  # words, layers, head, scale, which is called after words; device 0 of cpu_gpu is the CPU
        ("p100x3", (0, 0, 0, 1, 1, 2, 2, 0), "--n-gpu-layers 6 --tensor-split 2,2,2", (0, 0, 0, 1, 1, 2, 2, 0)),
        ("p100x3", (0, 0, 0, 2, 2, 2, 2, 0), "--n-gpu-layers 6 --tensor-split 2,0,4", (0, 0, 0, 2, 2, 2, 2, 0)),
        ("p100x3", (1,) * 8, "--n-gpu-layers 6 --tensor-split 0,6,0", (1,) * 8),
        (
            "p100x3", (1, 1, 1, 0, 0, 0, 0, 1), "--n-gpu-layers 6 --device CUDA1,CUDA0 --tensor-split 2,4",
            (1, 1, 1, 0, 0, 0, 0, 1),
        ),
        (
            "p100x3", (2, 2, 0, 2, 0, 0, 0, 0),
            r"--n-gpu-layers 6 --device CUDA2,CUDA0 --tensor-split 2,4 -ot 'blk\.(1)\.=CUDA0,blk\.(2)\.=CUDA2'",
            (2, 2, 0, 2, 0, 0, 0, 2),
        ),
        (
            "cpu_gpu:gpus=2", (0, 0, 0, 2, 2, 2, 0, 0),
            r"--n-gpu-layers 4 --tensor-split 0,4 -ot '^output\.weight=CPU'", (0, 0, 0, 2, 2, 2, 0, 0),
        ),
        ("cpu_gpu:gpus=2", (0, 0, 0, 0, 0, 0, 2, 0), "--n-gpu-layers 1 --tensor-split 0,1", (0, 0, 0, 0, 0, 0, 2, 0)),
        (
            "cpu_gpu:gpus=2", (1, 1, 0, 1, 2, 0, 2, 0),
            r"--n-gpu-layers 6 --tensor-split 3,3 -ot 'blk\.(1|4)\.=CPU'", (0, 1, 0, 1, 2, 0, 2, 0),
        ),
        ("cpu_gpu:gpus=2", (0,) * 8, "--n-gpu-layers 0", (0,) * 8),
    ],
)  # fmt: skip
def test_llama_cpp_counts_layers_and_names_those_on_the_cpu(
    cluster: str, places: tuple[int, ...], text: str, rounded: tuple[int, ...]
) -> None:
    model = Row()
    problem = placelab.place((model, (WORDS,)), cluster=cluster, placer="single_device", groups=None).problem
    keys = ModuleKeys.of(problem, Plan.of([0] * len(problem.graph)), model)
    written = export_plan(problem, keys.placed(np.array(places)), model, "llama_cpp")
    assert written.text == text
    keyed = keys.modules.of_op >= 0
    assert np.array_equal(written.plan.placement[keyed], np.array(rounded)[keys.modules.of_op[keyed]])


def devices_by_llama_cpp(text: str, layers: int, gpus: int) -> list[str]:
    """Where llama.cpp computes each layer, and the output, given its arguments.

    As load_tensors of src/llama-model.cpp has it: the first layers are the CPU's, the others are dealt out to devices
    by the running sum of shares, in single precision. A pattern of -ot, which is looked for in the names of tensors,
    says where weights are kept, and ggml computes where these are.
    """
    found = shlex.split(text)
    given = {key: value for key, value in pairwise(found) if key.startswith("-")}
    offloaded = int(given["--n-gpu-layers"])
    devices = given["--device"].split(",") if "--device" in given else [f"CUDA{number}" for number in range(gpus)]
    shares = np.zeros(len(devices), np.float32)
    values = given.get("--tensor-split", "1").split(",")
    shares[: len(values)] = np.array(values, np.float32)
    ends = np.cumsum(shares, dtype=np.float32) / shares.sum()
    first, count = max(layers + 1 - offloaded, 0), min(offloaded, layers + 1)
    placed = []
    for slot in range(layers + 1):
        device = "CPU"
        if first <= slot < first + count:
            device = devices[int(np.searchsorted(ends, np.float32(slot - first) / np.float32(count), side="right"))]
        tensor = "output.weight" if slot == layers else f"blk.{slot}.attn_output.weight"
        for entry in filter(None, given.get("-ot", "").split(",")):
            pattern, _, place = entry.rpartition("=")
            device = place if re.search(pattern, tensor) else device
        placed.append(device)
    return placed


@given(
    cluster=st.sampled_from(["p100x3", "p100x4", "cpu_gpu:gpus=2", "cpu_gpu:gpus=3"]),
    places=st.lists(st.integers(0, 3), min_size=8, max_size=8), is_sorted=st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_llama_cpp_has_every_layer_where_the_plan_has_it(cluster: str, places: list[int], is_sorted: bool) -> None:
    model, problem = Row(), _row_on_four()
    problem = replace(problem, cluster=load_cluster(cluster), op_seconds=None)
    names = [device.name for device in problem.cluster.devices]
    places = [place % len(names) for place in places]
    places[1:7] = sorted(places[1:7]) if is_sorted else places[1:7]
    keys = ModuleKeys.of(problem, Plan.of([0] * len(problem.graph)), model)
    written = export_plan(problem, keys.placed(np.array(places)), model, "llama_cpp")
    gpus = [name for name in names if not name.startswith("cpu")]
    wanted = ["CPU" if names[place].startswith("cpu") else f"CUDA{gpus.index(names[place])}" for place in places[1:7]]
    assert devices_by_llama_cpp(written.text, 5, len(gpus)) == wanted
    keyed = keys.modules.of_op
    assert np.array_equal(written.plan.placement[keyed == 6], np.full((keyed == 6).sum(), places[6]))
    moved = {key for key in set(keyed[keyed >= 0].tolist()) if written.plan.placement[keyed == key][0] != places[key]}
    assert moved <= {0, 7}, "the embedding and what is with it may be on the CPU"
    assert written.moved == len(moved)
    assert any("On other devices than planned: words on" in note for note in written.notes) == (0 in moved)
    if "-ot" not in written.text and max(written.plan.placement) < len(gpus) and "cpu" not in cluster:
        assert not any("key-value" in note for note in written.notes)


@pytest.mark.parametrize("to", ["vllm", "megatron", "deepspeed", "torchtitan"])
def test_the_order_of_devices_that_a_text_lacks_is_said(to: str) -> None:
    model, problem = Row(), _row_on_four()
    keys = ModuleKeys.of(problem, Plan.of([0] * len(problem.graph)), model)
    written = export_plan(problem, keys.placed(np.array([2, 2, 2, 0, 0, 0, 0, 2])), model, to)
    assert "rank 0 is gpu:2, rank 1 is gpu:0" in written.notes[0]
    assert "CUDA_VISIBLE_DEVICES=2,0" in written.notes[0]
    assert export_plan(problem, keys.placed(np.array([0, 0, 0, 1, 1, 1, 1, 0])), model, to).notes == ()
    mixed = export_plan(problem, keys.placed(np.array([0, 0, 1, 0, 1, 1, 1, 0])), model, to)
    assert mixed.moved == 2
    assert mixed.notes == (
        "On other devices than planned: layers.1 on gpu:0 (planned gpu:1), layers.2 on gpu:1 (planned gpu:0).",
    )
    beside = replace(problem, cluster=load_cluster("cpu_gpu:gpus=3"), op_seconds=None)
    with pytest.raises(InputError, match=f"{to} has stages on GPUs, and this plan has modules on cpu:0 beside others"):
        export_plan(beside, keys.placed(np.array([0, 0, 0, 1, 1, 1, 1, 0])), model, to)


class Skips(nn.Module):
    """Layers that go down, and layers that go up, each of which reads what one that went down has left."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.up = nn.ModuleList(nn.Linear(16, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        left = [x]
        for layer in self.down:
            left.append(x := layer(x).relu())
        for layer in self.up:
            x = layer(torch.cat([x, left.pop()], 1))
        return x


class Tables(nn.Module):
    """Tables side by side, as those of a recommender."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(20, 8) for _ in range(4))
        self.top = nn.Linear(32, 1)

    def forward(self, ids: Tensor) -> Tensor:
        y: Tensor = self.top(torch.cat([table(ids[:, i]) for i, table in enumerate(self.tables)], 1))
        return y


class Graphs(nn.Module):
    """Layers of a graph network, which all read the edges."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(GraphLayer(*pair) for pair in pairwise(sizes))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edges).relu()
        return x


class GraphLayer(nn.Linear):
    """Sums what the neighbours have."""

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:  # type: ignore[override]
        gathered = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
        return super().forward(x + gathered)


@pytest.mark.parametrize(
    ("model", "inputs", "why"),
    [
        (Skips(), (torch.ones(4, 8),), "'up.1' of 'Skips' reads 'down.1' as well"),
        (Tables(), (torch.zeros(4, 4, dtype=torch.long),), "'tables.1' of 'Tables' does not read 'tables.0'"),
        (Graphs((8, 16, 4)), (torch.ones(5, 8), torch.zeros(2, 7, dtype=torch.long)), "graph"),
        (Graphs((8, 8, 8, 8)), (torch.ones(5, 8), torch.zeros(2, 7, dtype=torch.long)), "graph"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("to", ["vllm", "megatron", "deepspeed", "torchtitan", "llama_cpp"])
def test_models_that_are_no_chain_of_layers_are_refused(
    model: nn.Module, inputs: tuple[Tensor, ...], why: str, to: str
) -> None:
    problem = placelab.place((model, inputs), cluster="p100x2", placer="single_device", groups=None).problem
    with pytest.raises(InputError, match=None if to == "llama_cpp" else why):  # that knows layers by name
        export_plan(problem, Plan.of([0] * len(problem.graph)), model, to)


def test_layers_that_are_counted_have_equal_weights() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
    problem = placelab.place(
        (model, (torch.ones(4, 8),)), cluster="p100x2", placer="single_device", groups=None
    ).problem
    plan = Plan.of([0] * len(problem.graph))
    for to in ("vllm", "megatron"):
        with pytest.raises(InputError, match=f"{to} counts equal layers, and '0' and '1' of 'Sequential' have unlike"):
            export_plan(problem, plan, model, to)
    assert json.loads(export_plan(problem, plan, model, "torchtitan").text) == [["0", "1"]]


def _row_on_four(known: list[Problem] = []) -> Problem:  # noqa: B006 - captured once
    if not known:
        known.append(placelab.place((Row(), (WORDS,)), cluster="p100x4", placer="single_device", groups=None).problem)
    return known[0]


def test_all_formats_are_offered_and_in_the_document() -> None:
    assert get_args(ExportFormat) == (*OF_MODULES, *OF_PLANS)
    assert tuple(OF_PLANS) == WITHOUT_MODEL
    document = (ROOT / "docs/running.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", document, re.MULTILINE) == [*OF_MODULES, *OF_PLANS]


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
    with pytest.raises(InputError, match="'Row' is a training step already; leave out `training=False`"):
        placelab.place(step, cluster="p100x2", placer="single_device", training=False)
    with pytest.raises(InputError, match="a suite has training steps; leave one out"):
        placelab.compare(suite="papers", training=False)


def test_what_cannot_be_exported_gets_one_sentence() -> None:
    model, inputs = (Row(), (WORDS,)), "p100x2"
    problem = placelab.place(model, cluster=inputs, placer="single_device", groups=None).problem
    one = Plan.of([0] * len(problem.graph))
    with pytest.raises(InputError, match="export takes plans with one device per op, and this plan places ops on 2"):
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
