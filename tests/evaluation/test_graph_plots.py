"""Drawings of op graphs."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import placelab
from evaluation.drawing.graph_page import graph_chart
from evaluation.drawing.graph_plots import positions, save_drawing
from evaluation.drawing.module_tree import ROOT, ModuleTree
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from tests.evaluation.chromium import opened
from tests.oracle.toys import random_graph, toy_graph

MODEL = "layered:depth=3,breadth=2,batch=4"


def test_ops_stand_as_deep_as_the_longest_chain_before_them() -> None:
    graph = toy_graph([1] * 4, [(0, 1), (1, 3), (0, 2), (2, 3), (0, 3)])
    assert positions(graph).tolist() == [[0, 0], [1, -0.5], [1, 0.5], [2, 0]]


def test_a_drawing_is_saved_as_its_ending_says(tmp_path: Path) -> None:
    for ending, begin in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("html", b"<!doctype html>")):
        path = tmp_path / f"graph.{ending}"
        save_drawing(random_graph(50, 0), path)
        assert path.read_bytes().startswith(begin)
    with pytest.raises(InputError, match=r"a drawing is \*.png, \*.svg or \*.html"):
        save_drawing(random_graph(5, 0), tmp_path / "graph.gif")


@pytest.mark.parametrize("ending", ["png", "svg", "html"])
def test_a_name_may_hold_what_the_font_has_no_sign_for(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"graph.{ending}"
    save_drawing(replace(toy_graph([1, 1], [(0, 1)]), names=("\U0001f642/mm", "\u7f51/mm")), path)  # no warning
    assert path.stat().st_size > 1000


def test_show_draws_by_module_or_by_device(tmp_path: Path) -> None:
    page, plan = tmp_path / "model.html", tmp_path / "model.plan.json"
    placelab.show(MODEL, draw=page)
    assert "classifier" in page.read_text()
    placelab.place(MODEL, placer="round_robin", groups=8, out=plan)
    placelab.show(MODEL, groups=8, draw=page, plan=plan)
    text = page.read_text()
    assert "gpu:0" in text
    assert "gpu:1" in text
    assert '"categories"' in text


def test_large_graphs_draw_some_of_their_edges(tmp_path: Path) -> None:
    path = tmp_path / "large.svg"
    save_drawing(random_graph(12_000, 0, weights=False), path, ["one", "two"] * 6_000)
    assert path.stat().st_size < 8e6
    edges = len(random_graph(12_000, 0, weights=False).edges)
    [drawn] = re.findall(rf"([0-9,]+) of {edges:,} edges are drawn", path.read_text())
    assert 10_000 <= int(drawn.replace(",", "")) <= 20_000


def test_a_page_says_how_many_edges_it_leaves_out(tmp_path: Path) -> None:
    names, ones = tuple(f"op{op}" for op in range(3_111)), np.ones(3_111)
    chain = np.stack([np.arange(3_110), np.arange(1, 3_111)], axis=1)
    graph = OpGraph("chain", names, ("mm",) * 3_111, ones, ones, ones, chain)
    save_drawing(graph, tmp_path / "graph.html", ["one"] * 3_111)
    ask = """
      const texts = [...Bokeh.documents[0]._all_models.values()].map((each) => String(each.text));
      return String(texts.some((text) => text.includes("110 edges, which carry least, are left out")));
    """
    assert opened(tmp_path / "graph.html", ask) == "true"


def in_modules(graph: OpGraph, names: list[str]) -> OpGraph:
    return replace(graph, names=tuple(names))


def test_a_tree_of_modules_has_ops_in_their_modules_from_left_to_right() -> None:
    graph = toy_graph([1] * 5, [(0, 1), (1, 2), (2, 3), (0, 4), (4, 3)])
    tree = ModuleTree.of(in_modules(graph, ["a.x/mm", "a.x/add", "a.y/mm", "loss", "b/mm"]))
    numbers = {name: node for node, name in enumerate(tree.names) if node >= 5}
    assert [tree.parent[op] for op in range(5)] == [numbers["x"], numbers["x"], numbers["y"], ROOT, numbers["b"]]
    assert tree.parent[numbers["x"]] == tree.parent[numbers["y"]] == numbers["a"]
    beside = {(tree.names[first], tree.names[second]) for first, second in tree.siblings.tolist()}
    assert beside == {("mm", "add"), ("x", "y"), ("a", "loss"), ("a", "b"), ("b", "loss")}
    assert [tree.layers[numbers[name]] for name in ("a", "b", "x", "y")] == [0, 1, 0, 1]
    assert tree.layers[:5].tolist() == [0, 1, 0, 2, 0]
    assert sorted(tree.order.tolist()) == list(range(len(tree)))


def test_a_module_uses_each_of_its_parameters_once() -> None:
    graph = toy_graph([1] * 3, [(0, 1), (1, 2)], weights=[5, 7], weight_uses=[(0, 0), (1, 0), (1, 1), (2, 1)])
    tree = ModuleTree.of(in_modules(graph, ["a.x/mm", "a.y/mm", "b/mm"]))
    size = dict(zip(tree.names, tree.weight_bytes.tolist(), strict=True))
    assert tree.weight_bytes[:3].tolist() == [5, 12, 7]
    assert {name: size[name] for name in ("x", "y", "a", "b")} == {"x": 5, "y": 12, "a": 12, "b": 7}


def test_modules_that_wait_for_each_other_are_in_the_order_in_which_they_begin() -> None:
    graph = in_modules(toy_graph([1] * 4, [(0, 1), (1, 2), (2, 3)]), ["a/mm", "b/mm", "a/add", "b/add"])
    tree = ModuleTree.of(graph)
    assert {tree.names[node]: int(tree.layers[node]) for node in (4, 5)} == {"a": 0, "b": 1}


def test_the_passes_of_a_training_step_are_apart(tmp_path: Path) -> None:
    path = tmp_path / "model.html"
    placelab.show(MODEL, draw=path)
    for name in ("forward pass", "backward pass", "update"):
        assert f'"{name}"' in path.read_text()


def test_a_page_opens_modules_and_finds_ops(tmp_path: Path) -> None:
    graph = in_modules(random_graph(600, 0), [f"outer.{op // 10}.part{op % 10 // 5}/op{op}" for op in range(600)])
    save_drawing(graph, tmp_path / "graph.html", ["one", "two"] * 300)
    ask = """
      const model = (name) => [...Bokeh.documents[0]._all_models.values()].find((each) => each.type.endsWith(name));
      const found = () => Bokeh.documents[0].get_model_by_name("nodes").data.path.filter((each) => /op587/.test(each));
      const before = found().length;
      model("TextInput").value = "op587";
      await new Promise((done) => setTimeout(done, 500));
      const after = found();
      model("Select").value = "bytes";
      await new Promise((done) => setTimeout(done, 500));
      return JSON.stringify([before, after]);
    """
    assert opened(tmp_path / "graph.html", ask) == '[0,["outer.58.part1/op587"]]'
    opened(tmp_path / "graph.html", width=400)


def test_a_page_of_ten_thousand_ops_is_one_file_of_a_few_megabytes(tmp_path: Path) -> None:
    names = [f"layers.{op // 100}.{op // 10 % 10}/op{op}" for op in range(10_000)]
    graph = in_modules(random_graph(10_000, 0, weights=False), names)
    save_drawing(graph, tmp_path / "large.html", ["one", "two"] * 5_000)
    assert (tmp_path / "large.html").stat().st_size < 5e6


def test_equal_graphs_give_equal_drawings() -> None:
    graph = random_graph(30, 0)
    assert graph_chart(graph, ["a"] * 30) == graph_chart(graph, ["a"] * 30)
