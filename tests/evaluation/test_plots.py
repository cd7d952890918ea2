import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from envs.simulation.simulator import Simulator, simulate
from envs.timelines.timeline import Timeline
from evaluation.drawing.sections import step_summary_html
from evaluation.drawing.timeline_plots import save_steps
from evaluation.records.formatting import seconds
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.oracle.toys import Toy, random_graph, toy_cluster, toy_graph


def words(svg: str) -> str:
    """The text in a plot; also checks that the plot is well-formed."""
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg")
    return " | ".join(element.text or "" for element in root.iter() if element.tag.endswith("text"))


def gantt(timeline: Timeline, folder: Path) -> str:
    """A step's chart as SVG."""
    save_steps({"": timeline}, folder / "gantt.svg")
    return (folder / "gantt.svg").read_text()


def test_a_dollar_in_a_name_is_a_dollar(tmp_path: Path) -> None:
    graph = toy_graph([1], [], name="a$b$c")
    timeline = Simulator(Problem(graph, toy_cluster(1))).timeline([0])
    assert "gpu:0" in words(gantt(timeline, tmp_path))


def test_a_gantt_chart_has_a_row_per_device_and_link(four_ops_two_devices: Toy, tmp_path: Path) -> None:
    timeline = Simulator(four_ops_two_devices.problem).timeline([0, 0, 1, 1])
    text = words(gantt(timeline, tmp_path))
    assert all(name in text for name in ("gpu:0", "gpu:1", "gpu:0>gpu:1", "forward", "transfer", "seconds"))
    assert "backward" not in text


def test_a_gantt_chart_of_a_whole_plan_shows_passes(tmp_path: Path) -> None:
    chain = Pipeline(2, forward=[1, 2], backward=[1, 3], activation=6, update=1)
    timeline = simulate(chain.problem(servers(2, bandwidth=2)), chain.plan("gpipe"))
    text = words(gantt(timeline, tmp_path)).split(" | ")
    assert [text.count(label) for label in ("F0", "B0", "U", "transfer", "all-reduce")] == [2, 2, 2, 1, 0]
    bars = step_summary_html(timeline)
    assert all(f"</svg> {said}" in bars for said in ("forward", "backward", "update", "bubble"))
    assert ">27%<" in bars


def test_passes_too_short_for_their_labels_are_drawn_without(tmp_path: Path) -> None:
    chain = Pipeline(2, 64)
    timeline = simulate(chain.problem(), chain.plan("gpipe"))
    text = words(gantt(timeline, tmp_path)).split(" | ")
    assert {"F0", "B0"}.isdisjoint(text)
    assert "forward" in text


def test_plots_of_thousands_of_ops_stay_small(tmp_path: Path) -> None:
    graph = random_graph(5000, seed=0)
    problem = Problem(graph, toy_cluster(4, memory=1e6))
    timeline = Simulator(problem).timeline(np.random.default_rng(0).integers(0, 4, graph.num_units))
    assert len(gantt(timeline, tmp_path)) < 500_000


def test_a_step_without_time_can_be_drawn(tmp_path: Path) -> None:
    timeline = Simulator(Problem(toy_graph([0], []), toy_cluster(1))).timeline([0])
    assert words(gantt(timeline, tmp_path))


def test_steps_are_below_one_another_on_one_axis(four_ops_two_devices: Toy, tmp_path: Path) -> None:
    toy = four_ops_two_devices
    predicted, measured = (Simulator(toy.problem).timeline(each) for each in (toy.best_placement, [0, 0, 0, 0]))
    save_steps({"predicted": predicted, "measured": measured}, tmp_path / "both.svg")
    said = words((tmp_path / "both.svg").read_text())
    assert f"predicted: {seconds(predicted.step_seconds)}" in said
    assert f"measured: {seconds(measured.step_seconds)}" in said


def test_a_chart_is_saved_as_its_ending_says(four_ops_two_devices: Toy, tmp_path: Path) -> None:
    toy = four_ops_two_devices
    timeline = Simulator(toy.problem).timeline(toy.best_placement)
    for ending, begin in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("html", b"<!doctype html>")):
        path = tmp_path / f"chart.{ending}"
        save_steps({"": timeline}, path)
        assert path.read_bytes().startswith(begin)
    with pytest.raises(InputError, match=r"chart.pdf: a Gantt chart is \*.png, \*.svg or \*.html"):
        save_steps({"": timeline}, tmp_path / "chart.pdf")
