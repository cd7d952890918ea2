"""Graphs and clusters by text."""

import inspect
from pathlib import Path

import pytest

from graphs import by_name
from graphs.cluster_file import save_cluster
from graphs.errors import InputError
from graphs.graph_file import save_graph
from graphs.load import load_cluster, load_graph, split
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
    ],
)
def test_what_is_no_graph(what: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        load_graph(what)


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
    for name in by_name.names("graphs.clusters"):
        if "devices" in inspect.signature(by_name.module("graphs.clusters", name).build).parameters:
            assert len(load_cluster(f"{name}x3")) % 3 == 0


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("v100x9", "v100: devices is 9; expected 1 to 4"),
        ("p10x4", "unknown cluster 'p10x4'; did you mean 'p100'"),
        ("p100x", "unknown cluster 'p100x'; did you mean 'p100'"),
        ("p100xtwo", "unknown cluster 'p100xtwo'"),
        ("cpu_gpux2", "unknown cluster 'cpu_gpux2'; did you mean 'cpu_gpu'"),  # its knob is another
        ("p100x4:devices=2", "unknown cluster 'p100x4'; did you mean 'p100'"),
    ],
)
def test_what_is_short_for_no_cluster(what: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        load_cluster(what)


def test_a_split_is_what_the_families_list() -> None:
    families = by_name.names("graphs.families")
    train, test = split(families, "train"), split(families, "test")
    assert not set(train) & set(test)
    assert split(["rnnlm"], "test") == [f"rnnlm:{k}" for k in by_name.constants("graphs.families", "rnnlm")["TEST"]]
    assert len(train) == sum(len(split([family], "train")) for family in families)
