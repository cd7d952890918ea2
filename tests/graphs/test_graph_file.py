"""Graph files: what is saved is what is loaded, and a mistake in one is found and named."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphs.capture.training_step import training_step
from graphs.formats.graph_file import load_graph_file, save_graph
from graphs.foundation.errors import InputError
from graphs.notation.signatures import origin
from graphs.op_graph import OpGraph
from graphs.op_groups.grouping import tie_ops
from tests.oracle.toys import random_graph

SMALL: dict[str, Any] = {
    "schema": "placelab.graph",
    "version": 1,
    "name": "small",
    "nodes": [
        {"name": "a", "kind": "mm", "flops": 8, "output_bytes": 16},
        {"name": "b", "kind": "relu", "mirror": "a"},
    ],
    "edges": [["a", "b"]],
    "weights": [16],
    "weight_uses": [["a", 0]],
}


def written(path: Path, **changes: object) -> Path:
    file = path / "small.graph.json"
    file.write_text(json.dumps(SMALL | changes))
    return file


def same(one: OpGraph, other: OpGraph) -> bool:
    return one.name == other.name and one.fingerprint == other.fingerprint


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ops=st.integers(1, 30), seed=st.integers(0, 99), ending=st.sampled_from([".graph.json", ".graph.json.gz"]),
    training=st.booleans(), groups=st.none() | st.integers(1, 10),
)  # fmt: skip
def test_a_graph_comes_back_as_it_was(
    tmp_path: Path, ops: int, seed: int, ending: str, training: bool, groups: int | None
) -> None:
    graph = random_graph(ops, seed)
    graph = training_step(graph) if training else graph
    graph = graph if groups is None else tie_ops(graph, groups)
    save_graph(graph, tmp_path / f"one{ending}")
    loaded = load_graph_file(tmp_path / f"one{ending}")
    assert same(loaded, graph)
    assert loaded.units.tolist() == graph.units.tolist()


@pytest.mark.parametrize("merged", [{"members": {"schema": "placelab.graph"}}, {"member_of": [0, 0, 1]}])
def test_merged_op_groups_of_earlier_versions_are_refused_with_what_to_place_instead(
    tmp_path: Path, merged: dict[str, object]
) -> None:
    save_graph(random_graph(3, 1), tmp_path / "one.graph.json")
    content = json.loads((tmp_path / "one.graph.json").read_bytes())
    (tmp_path / "one.graph.json").write_text(json.dumps(content | merged))
    with pytest.raises(InputError, match=r"one\.graph\.json: its ops are merged into op groups, .* with --groups"):
        load_graph_file(tmp_path / "one.graph.json")


SIGNED = {
    "nodes": [{"name": "a", "kind": "aten.mm", "signature": 0, "sources": [["input", 0], ["weight", 0]]},
              {"name": "b", "kind": "aten.relu", "signature": 1, "sources": [["op", "a"]]}],
    "signatures": [
        {"function": "aten.mm", "outputs": [[2, 3]], "dtype": "float32", "arguments": [{"read": 0}, {"read": 1}],
         "reads": [{"shape": [2, 4], "dtype": "float32", "base": [2, 4]},
                   {"shape": [4, 3], "dtype": "float32", "base": [3, 4],
                    "views": [{"function": "aten.permute", "shape": [4, 3], "arguments": [[1, 0]]}]}]},
        {"function": "aten.relu", "outputs": [[2, 3]], "dtype": "float32", "arguments": [{"read": 0}],
         "reads": [{"shape": [2, 3], "dtype": "float32", "base": [2, 3]}]},
    ],
}  # fmt: skip


def test_signatures_come_back_as_they_were(tmp_path: Path) -> None:
    graph = training_step(load_graph_file(written(tmp_path, version=2, **SIGNED)))
    assert graph.signatures is not None
    assert [origin(each, 1) for each in graph.signatures.numbers(0)] == [("input", 0), ("weight", 0)]
    assert graph.signatures.numbers(1) == [0]
    first = graph.signatures.signature(0)
    assert first is not None
    assert (first.shape, first.reads[1].views[0].arguments) == ((2, 3), ([1, 0],))
    assert graph.signatures.signature(2) is None
    save_graph(graph, tmp_path / "again.graph.json.gz")
    loaded = load_graph_file(tmp_path / "again.graph.json.gz").signatures
    assert loaded is not None
    assert loaded.distinct == graph.signatures.distinct
    for key in ("of", "offsets", "sources"):
        assert getattr(loaded, key).tolist() == getattr(graph.signatures, key).tolist()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"signature": 2}, "an op has a signature that does not exist; there are 2"),
        ({"sources": [["input", 0]]}, "the ops' signatures read 3 tensors, of other sources"),
        (
            {"sources": [["input", 0], ["weight", 1]]},
            r"nodes\[0\].sources\[1\]: there is no weight 1; there are 1 weights",
        ),
        (
            {"sources": [["input", "x"], ["weight", 0]]},
            r"nodes\[0\].sources\[0\]: expected the number of the input, got 'x'",
        ),
        ({"sources": [["op", "c"], ["weight", 0]]}, "unknown op 'c'"),
    ],
)
def test_a_mistake_in_signatures_is_named(tmp_path: Path, changes: dict[str, object], sentence: str) -> None:
    nodes: Any = SIGNED["nodes"]
    with pytest.raises(InputError, match=rf"small\.graph\.json: .*{sentence}"):
        load_graph_file(written(tmp_path, **SIGNED | {"nodes": [nodes[0] | changes, nodes[1]]}))


def test_the_same_graph_is_the_same_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        save_graph(random_graph(9, 1), tmp_path / f"{name}.graph.json.gz")
    assert (tmp_path / "one.graph.json.gz").read_bytes() == (tmp_path / "two.graph.json.gz").read_bytes()


def test_a_file_written_by_hand(tmp_path: Path) -> None:
    graph = load_graph_file(written(tmp_path))
    assert graph.names == ("a", "b")
    assert graph.flops.tolist() == [8, 0]
    assert graph.edges.tolist() == [[0, 1]]
    assert graph.mirror.tolist() == [-1, 0]
    assert graph.weight_bytes.tolist() == [16, 0]
    assert np.isnan(graph.measured_seconds).all()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"version": 3}, "written as version 3, this placelab reads versions 1 and 2"),
        ({"schema": "placelab.plan"}, "this is a file of 'placelab.plan'; expected one of 'placelab.graph'"),
        ({"nodse": []}, "unknown key 'nodse'; did you mean 'nodes'"),
        (
            {"nodes": [{"name": "a", "kind": "mm", "output_bytes": -1}]},
            r"nodes\[0\].output_bytes: expected .*>= 0.*, got -1",
        ),
        ({"nodes": [{"name": "a"}]}, r"nodes\[0\]: the key 'kind' is missing; add it"),
        (
            {"nodes": [{"name": "a", "kind": "mm", "flosp": 1}]},
            r"nodes\[0\]: unknown key 'flosp'; did you mean",
        ),
        (
            {"nodes": [{"name": "a", "kind": "mm", "phase": "sideways"}]},
            r"nodes\[0\].phase: unknown value 'sideways'",
        ),
        ({"nodes": [], "edges": [], "weight_uses": []}, "graph 'small' has no ops"),
        ({"edges": [["a", "c"]]}, r"edges\[0\]: unknown op 'c'.*there are: a, b"),
        ({"edges": [[0, 5]]}, r"edges\[0\]: there is no op 5; there are 2 ops"),
        ({"weight_uses": [["a", 3]]}, "weight_uses names 3, which does not exist"),
        ({"edges": [["a", "b"], ["b", "a"]]}, "'small' is cyclic: a -> b -> a|'small' is cyclic: b -> a -> b"),
        ({"control": [1]}, "control: there is no edge 1; there are 1 edges"),
        ({"version": "1"}, "version: expected the number 2, got '1'"),
        ({"nodes": [{"name": "a", "kind": "mm"}] * 2}, r"nodes\[1\].name: 'a' is nodes\[0\] already"),
        ({"weights": [1e308]}, "bytes of 'weight 0' is 1e.308; expected a finite number >= 0, at most 1e.18"),
        (
            {"nodes": [{"name": "a", "kind": "mm", "group": 2**70}]},
            r"nodes\[0\].group: expected a whole number <= .*, got ",
        ),
        ({"weight_uses": [["a", 2**70]]}, r"weight_uses\[0\]\[1\]: expected a whole number <= .*, got "),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=rf"small\.graph\.json: .*(?:{sentence})"):
        load_graph_file(written(tmp_path, **changes))


def test_a_file_that_is_not_there_or_damaged(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.graph\.json does not exist; `placelab capture"):
        load_graph_file(tmp_path / "none.graph.json")
    damaged = tmp_path / "damaged.graph.json"
    damaged.write_text("{")
    with pytest.raises(InputError, match=r"damaged\.graph\.json is damaged: "):
        load_graph_file(damaged)
    cut = tmp_path / "cut.graph.json.gz"
    cut.write_bytes(gzip.compress(b"{}" * 99)[:-9])
    with pytest.raises(InputError, match="is damaged"):
        load_graph_file(cut)
    with pytest.raises(InputError, match="cannot be read"):
        load_graph_file(tmp_path)


def test_the_ending_is_checked_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.graph\.json or \.graph\.json\.gz"):
        save_graph(random_graph(3, 0), tmp_path / "graph.pt")
    assert not list(tmp_path.iterdir())
