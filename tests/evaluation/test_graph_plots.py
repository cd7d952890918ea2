"""Drawings of op graphs."""

from dataclasses import replace
from pathlib import Path

import pytest

import placelab
from evaluation.drawing.graph_plots import positions, save_drawing
from graphs.foundation.errors import InputError
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
    assert "classifier" not in text


def test_large_graphs_draw_some_of_their_edges(tmp_path: Path) -> None:
    path = tmp_path / "large.svg"
    save_drawing(random_graph(12_000, 0, weights=False), path, ["one", "two"] * 6_000)
    assert path.stat().st_size < 8e6
