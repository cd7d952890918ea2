"""Graphs and clusters by text."""

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphs.devices.cluster_file import save_cluster
from graphs.files.graph_source import graph_source, graph_sources
from graphs.files.load import load_cluster, load_clusters, load_graph
from graphs.files.splits import split
from graphs.formats.graph_file import save_graph
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from tests.oracle.toys import random_graph, toy_cluster

USER_FILE = Path(__file__).parents[1] / "fixtures" / "user_module.py"
SMALL = "transformer:layers=1,width=8,heads=2,sequence=4,batch=1,vocabulary=8"


def test_a_family_is_captured_as_a_training_step_or_forward_alone() -> None:
    step, forward = load_graph(SMALL), load_graph(SMALL, training=False)
    assert step.name == forward.name == SMALL
    assert step.is_training
    assert not forward.is_training
    assert step.names[: len(forward)] == forward.names


def test_groups_are_made_of_whatever_is_loaded(tmp_path: Path) -> None:
    assert load_graph(SMALL, groups=5).num_units == 5
    assert load_graph(random_graph(20, 1), groups=5).num_units == 5
    save_graph(random_graph(20, 1), tmp_path / "r.graph.json")
    assert load_graph(str(tmp_path / "r.graph.json"), groups=5).num_units == 5


def test_graphs_and_files_are_taken_as_they_are(tmp_path: Path) -> None:
    graph = random_graph(5, 1)
    assert load_graph(graph) is graph
    save_graph(graph, tmp_path / "r.graph.json.gz")
    assert load_graph(str(tmp_path / "r.graph.json.gz")).fingerprint == graph.fingerprint


def test_a_users_callable() -> None:
    assert load_graph(f"{USER_FILE}:two_towers").is_training


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (
            "rnlm",
            r"unknown model family 'rnlm'; did you mean 'rnnlm'\? there are: .*vgg, .*; .*graph\.json.*file\.py",
        ),
        ("rnnlm:layer=2", "unknown knob 'layer'; did you mean 'layers'"),
        ("missing.graph.json", r"missing\.graph\.json does not exist"),
        ("missing.json", r"missing\.json does not exist"),
        ("missing.py:model", r"missing\.py: no such Python file"),
        ("missing.py", r"expected the name of a function after the file, as in missing\.py:NAME"),
        ("missing.py:net,layers=8", r"knobs follow a second colon; write missing\.py:net:layers=8"),
        ("missing.txt", r"missing\.txt does not exist"),
        ("missing.onnx", r"missing\.onnx does not exist"),
        ("missing.onnx:batch=0", "expected sizes as"),
        ("missing.onnx:batch", "expected sizes as"),
        ("missing.onnx:", "expected sizes as"),
        ("", "unknown model family ''"),
        ("rnnlm:", "expected knobs as key=value"),
        ("rnnlm:layers=2,,steps=3", "expected knobs as key=value"),
        ("rnnlm:layers=2.5", "expected layers to be of type int, got '2.5'"),
        ("rnnlm:rnnlm-3", "unknown configuration of rnnlm 'rnnlm-3'; did you mean 'rnnlm-"),
        ("a" * 300, "unknown model family 'aaa"),
        (f"{'a' * 300}.py:f", "no such Python file"),
        ("resnet:layers=0", "expected layers to be at least 1, got 0"),
        (5, "expected a graph, a graph file, .*, got int"),
        (torch.nn.Linear(1, 1), r"got Linear; graphs\.capture\.forward\.capture makes a graph of a torch module"),
    ],
)
def test_what_is_no_graph(what: Any, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphs.capture.casting.traced_example", never)
    for refuse in (load_graph, graph_source):
        with pytest.raises(InputError, match=sentence) as caught:
            refuse(what)
        assert "\n" not in str(caught.value)


def never(*args: object, **keywords: object) -> None:
    raise AssertionError("nothing may be captured")


@pytest.mark.parametrize("groups", [0, -1, 1.5, "8"])
def test_wrong_groups_are_refused_before_anything_is_captured(groups: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphs.capture.casting.traced_example", never)
    with pytest.raises(InputError, match=r"cannot make .* op groups; ask for at least 1"):
        load_graph(SMALL, groups=groups)


def test_all_of_several_graphs_are_checked_and_none_is_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphs.capture.casting.traced_example", never)
    save_graph(random_graph(5, 1), file := tmp_path / "r.graph.json")
    graph_sources([SMALL, file, random_graph(5, 2), f"{USER_FILE}:two_towers"])
    with pytest.raises(InputError, match="unknown knob 'layer'"):
        graph_sources([SMALL, "rnnlm:layer=2"])
    with pytest.raises(InputError, match=f"graph '{SMALL}' is given twice"):
        graph_sources([SMALL, file, SMALL])
    file.write_text(file.read_text().replace('"op3"', "7"))
    with pytest.raises(InputError, match=r"r\.graph\.json: nodes"):
        graph_sources([SMALL, file])


def test_a_cluster_given_twice_is_refused_and_two_of_one_name_are_two() -> None:
    assert len(load_clusters([toy_cluster(3), toy_cluster(3, latency=1.0)])) == 2
    assert [len(cluster) for cluster in load_clusters(["p100x2", toy_cluster(3)])] == [2, 3]
    with pytest.raises(InputError, match="cluster 'p100:devices=2' is given twice; give each cluster once"):
        load_clusters(["p100x2", "v100", "p100:devices=2"])


def test_paths_are_taken(tmp_path: Path) -> None:
    save_graph(random_graph(5, 1), tmp_path / "r.graph.json")
    save_cluster(toy_cluster(3), tmp_path / "c.toml")
    assert len(load_graph(tmp_path / "r.graph.json")) == 5
    assert len(load_cluster(tmp_path / "c.toml")) == 3
    assert graph_source(tmp_path / "r.graph.json").problem is None


def test_a_graph_is_not_taken_for_the_file_of_its_name(tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    device = '"maxSizePerFPGA": 1.0, "maxFPGAs": 1, "maxCPUs": 0'
    seconds = '"cpuLatency": 1, "fpgaLatency": 1'
    node = f'{{"id": 0, "name": "a", "supportedOnFpga": 1, {seconds}, "isBackwardNode": 0, "size": 0}}'
    file.write_text(f'{{{device}, "nodes": [{node}], "edges": []}}')
    assert graph_source(file).problem is not None
    assert graph_source(replace(random_graph(5, 1), name=str(file))).problem is None


PROFILE = "node1 -- ReLU -- forward_compute_time=1, backward_compute_time=1, activation_size=1, parameter_size=0\n"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("alexnet/graph.txt", "alexnet"),
        ("alexnet/Profile.txt", "alexnet"),
        ("alexnet/vgg.txt", "vgg"),
        ("vgg-19-pbs-32.txt", "vgg-19-pbs-32"),
        ("alexnet/graph_2.txt", "graph_2"),  # several in one folder have names of their own
    ],
)
def test_a_file_whose_name_says_nothing_is_called_by_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, name: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(PROFILE)
    assert load_graph(path).name == name
    monkeypatch.chdir(path.parent)
    assert load_graph(path.name).name == name


def test_a_graph_file_of_ours_has_the_name_that_it_carries(tmp_path: Path) -> None:
    save_graph(random_graph(5, 1), tmp_path / "model.graph.json")
    (tmp_path / "model.graph.json").rename(tmp_path / "graph.json")
    assert load_graph(tmp_path / "graph.json").name == random_graph(5, 1).name


def test_two_profiles_of_the_name_that_the_profiler_gives_can_be_told_apart(tmp_path: Path) -> None:
    paths = [tmp_path / model / "graph.txt" for model in ("alexnet", "squeezenet1_0")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(PROFILE)
    graph_sources(paths)
    assert [load_graph(path).name for path in paths] == ["alexnet", "squeezenet1_0"]


def test_clusters(tmp_path: Path) -> None:
    cluster = toy_cluster(3)
    assert load_cluster(cluster) is cluster
    save_cluster(cluster, tmp_path / "toy.cluster.toml")
    assert load_cluster(str(tmp_path / "toy.cluster.toml")).fingerprint == cluster.fingerprint
    assert load_cluster("p100:devices=4").name == "p100:devices=4"
    with pytest.raises(InputError, match="unknown cluster 'p10'; did you mean 'p100'"):
        load_cluster("p10")
    with pytest.raises(InputError, match=r"none\.toml does not exist"):
        load_cluster("none.toml")


@pytest.mark.parametrize(
    ("short", "name"),
    [
        ("v100x4", "v100:devices=4"),
        ("p100x8", "p100:devices=8"),
        ("p2_8xlargex4", "p2_8xlarge:links=placeto,devices=4"),
        ("dgx_a100x2", "dgx_a100:servers=1,devices=2"),
    ],
)
def test_a_name_with_a_number_of_devices_is_short_for_the_knob(short: str, name: str) -> None:
    assert load_cluster(short).name == name
    assert load_cluster(short).fingerprint == load_cluster(name).fingerprint


def test_every_cluster_with_a_knob_for_devices_has_the_short_form() -> None:
    for name in by_name.built_in("graphs.clusters"):
        if "devices" in inspect.signature(by_name.module("graphs.clusters", name).build).parameters:
            assert len(load_cluster(f"{name}x3")) % 3 == 0


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("v100x9", "v100: devices is 9; expected 1 to 8"),
        ("p10x4", "unknown cluster 'p10x4'; did you mean 'p100'"),
        ("p100x", "unknown cluster 'p100x'; did you mean 'p100'"),
        ("p100xtwo", "unknown cluster 'p100xtwo'"),
        ("rtx3090+rtx3061", "unknown device 'rtx3061'; did you mean 'rtx3060'"),
        ("rtx3090,rtx3060", r"joined by \+, as in rtx3090\+rtx3060"),
        ("cpu_gpux2", "unknown cluster 'cpu_gpux2'; did you mean 'cpu_gpu'"),  # its knob is another
        ("p100x4:devices=2", "unknown cluster 'p100x4'; did you mean 'p100'"),
    ],
)
def test_what_is_short_for_no_cluster(what: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        load_cluster(what)


def test_a_split_is_what_the_families_list() -> None:
    families = by_name.built_in("graphs.families")
    train, test = split(families, "train"), split(families, "test")
    assert not set(train) & set(test)
    assert split(["rnnlm"], "test") == [f"rnnlm:{k}" for k in by_name.constants("graphs.families", "rnnlm")["TEST"]]
    assert len(train) == sum(len(split([family], "train")) for family in families)


def test_a_function_of_ones_own_takes_knobs_as_a_family_does(tmp_path: Path) -> None:
    file = tmp_path / "towers.py"
    file.write_text(
        "import torch\n\n\ndef build(*, towers: int = 2, batch: int = 4):\n"
        "    layers = [torch.nn.Linear(8, 8) for _ in range(towers)]\n"
        "    return torch.nn.Sequential(*layers), torch.zeros(batch, 8)\n"
    )
    for spec, towers, samples in (("build", 2, 4), ("build:towers=3", 3, 4), ("build:towers=1,batch=6", 1, 6)):
        graph = load_graph(f"{file}:{spec}", training=False)
        assert (graph.name, len(graph.weights) / 2) == (f"towers:{spec}", towers)
        assert graph.batch_law is not None
        assert graph.batch_law.samples == samples
    with pytest.raises(InputError, match="unknown knob 'tower'; did you mean 'towers'"):
        load_graph(f"{file}:build:tower=3")
    with pytest.raises(InputError, match="has no knobs"):
        load_graph(f"{USER_FILE}:two_towers:layers=3")


def test_a_module_is_called_by_its_class_and_size() -> None:
    for width, name in ((4, "Linear:20"), (40, "Linear:1.64k"), (999, "Linear:999k"), (1001, "Linear:1M")):
        with torch.device("meta"):
            model = torch.nn.Linear(width, width)
            given = model, (torch.zeros(2, width),)
        assert load_graph(given, training=False).name == name
    assert load_graph((torch.nn.Tanh(), (torch.zeros(2),)), training=False).name == "Tanh"
