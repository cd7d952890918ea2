"""Our own graphs in ONNX files: they come back as they were, and what was changed in them is named."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs.capture.training_step import training_step
from graphs.formats.onnx import load_onnx, save_onnx
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from tests.graphs.formats.test_onnx import several
from tests.oracle import strategies
from tests.oracle.toys import random_graph, toy_graph

onnx = pytest.importorskip("onnx")

AMOUNT = st.floats(0, 1e18) | st.integers(0, 2**59).map(float)


@st.composite
def full_graphs(draw: st.DrawFn) -> OpGraph:
    """Graphs with any cost in every column, and any text as a name."""
    bare = draw(st.integers(1, 8).flatmap(strategies.full_graphs))
    ops = len(bare)

    def column(values: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(values, min_size=ops, max_size=ops))

    return OpGraph(
        draw(st.text(max_size=5)),
        tuple(draw(st.lists(st.text(max_size=5), min_size=ops, max_size=ops, unique=True))),
        tuple(draw(st.lists(st.text(max_size=5), min_size=ops, max_size=ops))),
        np.array(column(AMOUNT)), np.array(column(AMOUNT)), np.array(column(AMOUNT)),
        edges=bare.edges, control=bare.control, weights=bare.weights, weight_uses=bare.weight_uses,
        phase=np.array(column(st.integers(0, 3)), np.int64), group=bare.group,
        mirror=np.array(column(st.integers(-1, ops - 1)), np.int64),
        measured_seconds=np.array(column(AMOUNT | st.just(np.nan))), measured_on=bare.measured_on,
        devices=bare.devices, transfer_bytes=bare.transfer_bytes, edge_bytes=bare.edge_bytes, frozen=bare.frozen,
        precisions=bare.precisions, weight_precisions=bare.weight_precisions,
    )  # fmt: skip


def same(one: OpGraph, other: OpGraph) -> bool:
    return one.name == other.name and one.fingerprint == other.fingerprint


@several
@given(full_graphs())
def test_a_graph_comes_back_as_it_was(tmp_path: Path, graph: OpGraph) -> None:
    save_onnx(graph, tmp_path / "one.onnx")
    assert same(load_onnx(tmp_path / "one.onnx"), graph)


def test_merged_op_groups_of_earlier_versions_are_refused_with_what_to_place_instead(tmp_path: Path) -> None:
    save_onnx(random_graph(3, 1), tmp_path / "one.onnx")
    model = onnx.load(tmp_path / "one.onnx")
    model.graph.node.append(onnx.helper.make_node("Members", [], ["members"], domain="placelab.grouped"))
    onnx.save(model, tmp_path / "one.onnx")
    with pytest.raises(InputError, match=r"its ops are merged into op groups, .* with --groups"):
        load_onnx(tmp_path / "one.onnx")


def test_what_is_written_is_a_valid_model_and_always_the_same(tmp_path: Path) -> None:
    graph = training_step(random_graph(9, 1))
    for name in ("one", "two"):
        save_onnx(graph, tmp_path / f"{name}.onnx")
    onnx.checker.check_model(tmp_path / "one.onnx", full_check=True)
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()


@pytest.mark.parametrize(
    ("key", "change", "sentence"),
    [
        ("flops", None, "node 'b': expected flops to be there"),
        ("flops", 3, "node 'b': expected flops to be a tensor of one double"),
        ("position", 0, r"the positions in 'position' are not 0 to 1, once each"),
        ("position", "first", "node 'b': expected position to be an integer"),
        ("edges", [1], r"the positions in 'edges' are not 0 to 0, once each"),
        ("edges", [0, 1], "node 'b': expected edges to be an entry per producer"),
        ("edges", None, "node 'b': expected weight_uses to be an entry per weight"),
        ("mirror", 5, "mirror names 5, which does not exist"),
        ("devices", 5, "node 'b': expected devices to be texts"),
        ("measured_devices", ["gpu"], "node 'b': expected measured_on to be an entry per device"),
        ("edge_bytes", 5, "node 'b': expected edge_bytes to be a tensor of doubles"),
        ("transfer_bytes", [1.0], "node 'b': expected transfer_bytes to be a tensor of doubles"),
    ],
)
def test_a_mistake_in_our_own_file_is_named(tmp_path: Path, key: str, change: object, sentence: str) -> None:
    file = tmp_path / "one.onnx"
    save_onnx(toy_graph([1, 2], [(0, 1)]), file)
    made = onnx.load_model(file)
    node = made.graph.node[1]
    kept = [attribute for attribute in node.attribute if attribute.name != key]
    del node.attribute[:]
    node.attribute.extend(kept + ([] if change is None else [onnx.helper.make_attribute(key, change)]))
    file.write_bytes(made.SerializeToString())
    with pytest.raises(InputError, match=rf"one\.onnx: .*{sentence}"):
        load_onnx(file)


def test_an_input_in_our_own_file_that_nothing_makes_is_named(tmp_path: Path) -> None:
    file = tmp_path / "one.onnx"
    save_onnx(toy_graph([1, 2], [(0, 1)]), file)
    made = onnx.load_model(file)
    made.graph.node[1].input[0] = "nothing"
    file.write_bytes(made.SerializeToString())
    with pytest.raises(InputError, match=r"one\.onnx: node 'b': expected the input 'nothing' to be the output of"):
        load_onnx(file)


@pytest.mark.parametrize("name", [b"second", b"position"], ids=["node", "attribute"])
def test_a_name_that_is_no_text_is_refused(name: bytes, tmp_path: Path) -> None:
    file, damaged = tmp_path / "one.onnx", name[:3] + b"\xff" + name[4:]
    save_onnx(replace(toy_graph([1, 2], [(0, 1)]), names=("first", "second")), file)
    file.write_bytes(file.read_bytes().replace(name, damaged))
    with pytest.raises(InputError, match=r"one\.onnx is damaged") as refused:
        load_onnx(file)
    assert f"{damaged!r} is a name and no text" in str(refused.value)


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    save_onnx(toy_graph([1], []), tmp_path / "one.onnx")
    made = onnx.load_model(tmp_path / "one.onnx")
    for opset in made.opset_import:
        opset.version = 2
    (tmp_path / "one.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(InputError, match=r"one\.onnx: written as version 2, this placelab reads version 1"):
        load_onnx(tmp_path / "one.onnx")
