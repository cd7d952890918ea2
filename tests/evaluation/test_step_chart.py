"""The chart of a step: what boxes say, worked out by hand; and pages of it, opened in Chromium."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import placelab
from envs.simulation.simulator import Simulator, simulate
from envs.timelines.timeline import Timeline
from evaluation.drawing.plan_moves import Move, moves, moves_table
from evaluation.drawing.step_boxes import Reason, StepLanes
from evaluation.drawing.step_figure import step_chart
from evaluation.drawing.timeline_plots import save_steps
from graphs.formats.graph_file import save_graph
from graphs.problem import Problem
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.evaluation.chromium import opened
from tests.oracle.toys import random_graph, toy_cluster, toy_graph

POINT = """
  const inside = (root, name) => [...root.querySelectorAll(name)].concat(
    ...[...root.querySelectorAll("*")].filter((each) => each.shadowRoot).map((each) => inside(each.shadowRoot, name)));
  const area = inside(document.querySelector(".chart .canvas"), ".bk-events")[0];
  const { left, top } = area.getBoundingClientRect();
  const place = { clientX: left + ACROSS, clientY: top + DOWN, bubbles: true, composed: true, pointerId: 1 };
  area.dispatchEvent(new PointerEvent("pointermove", { ...place, pointerType: "mouse", isPrimary: true }));
  area.dispatchEvent(new MouseEvent("mousemove", place));
  await new Promise((done) => setTimeout(done, 500));
  return inside(document, ".bk-Tooltip").map((each) => each.shadowRoot.textContent).join(" ");
"""


def pipeline() -> Timeline:
    chain = Pipeline(2, 2, forward=[1, 2], backward=[2, 2], activation=2, update=1)
    return simulate(chain.problem(servers(2, bandwidth=4, memory=100.0)), chain.plan("gpipe"))


def random_step(ops: int, devices: int) -> Timeline:
    graph = random_graph(ops, seed=0)
    placement = np.random.default_rng(0).integers(0, devices, graph.num_units)
    return Simulator(Problem(graph, toy_cluster(devices, memory=1e6))).timeline(placement)


def test_a_box_says_what_it_waited_for() -> None:
    graph = toy_graph([1, 3, 3, 1], [(0, 1), (0, 2), (1, 3), (2, 3)], output_bytes=[1, 2, 1, 1])
    step = StepLanes.of(Simulator(Problem(graph, toy_cluster(2)), order="fifo").timeline([0, 0, 1, 1]))
    boxes = step.boxes
    assert [lane.label for lane in step.lanes] == ["gpu:0", "gpu:1", "gpu:0>gpu:1"]
    assert boxes.op.tolist() == [0, 1, 2, 3, 0, 1]
    why = [Reason(reason).name for reason in boxes.reason.tolist()]
    assert why == ["NONE", "NONE", "TRANSFER", "TRANSFER", "NONE", "NONE"]
    assert boxes.waited.tolist() == [0, 0, 2, 1, 0, 0]
    assert boxes.awaited[2:4].tolist() == [0, 1]
    assert boxes.critical.tolist() == [True, True, False, True, False, True]
    assert [spans.tolist() for _, spans in step.idle()] == [[[4, 7]], [[0, 2], [5, 6]]]


def test_a_busy_device_and_a_busy_link_are_named() -> None:
    graph = toy_graph([1, 1, 2, 1, 1], [(0, 3), (1, 4)], output_bytes=[3, 1, 0, 0, 0])
    step = StepLanes.of(Simulator(Problem(graph, toy_cluster(2)), order="fifo").timeline([0, 0, 0, 1, 1]))
    boxes = step.boxes
    by_op = {(lane, op): row for row, (lane, op) in enumerate(zip(boxes.lane.tolist(), boxes.op.tolist(), strict=True))}
    second, sent = by_op[0, 1], by_op[2, 1]
    assert (boxes.reason[second], boxes.waited[second], boxes.awaited[second]) == (Reason.DEVICE, 1, 0)
    assert (boxes.reason[sent], boxes.waited[sent], boxes.awaited[sent]) == (Reason.LINK, 2, 0)


def test_a_pass_is_one_box_with_its_label() -> None:
    step = StepLanes.of(pipeline())
    on_first = [step.labels[label] for label in step.boxes.label[step.boxes.lane == 0].tolist()]
    assert on_first == ["F0", "F1", "B0", "B1", "U"]
    assert step.boxes.count[step.boxes.lane == 0].sum() == len(on_first)


def test_devices_that_do_nothing_have_no_lane() -> None:
    graph = toy_graph([1, 1], [(0, 1)])
    step = StepLanes.of(Simulator(Problem(graph, toy_cluster(4))).timeline([2, 2]))
    assert [lane.label for lane in step.lanes] == ["gpu:2"]


def test_many_boxes_become_fewer_and_no_time_and_no_op_is_lost() -> None:
    timeline = random_step(3000, 4)
    whole, fewer = StepLanes.of(timeline), StepLanes.of(timeline, most=1000)
    assert len(fewer.boxes) < 2500 < len(whole.boxes)
    for name in ("busy", "count", "bytes"):
        each = [getattr(step.boxes, name).sum() for step in (whole, fewer)]
        assert each[0] == pytest.approx(each[1])
    assert (fewer.boxes.busy <= (fewer.boxes.finish - fewer.boxes.start) * (1 + 1e-9))[fewer.boxes.lane < 4].all()


def test_equal_steps_give_equal_charts() -> None:
    assert step_chart({"": pipeline()}) == step_chart({"": pipeline()})


@pytest.mark.slow
def test_a_page_of_ten_thousand_ops_is_one_file_of_a_few_megabytes(tmp_path: Path) -> None:
    save_steps({"": random_step(10_000, 4)}, tmp_path / "step.html")
    page = (tmp_path / "step.html").read_text()
    assert len(page.encode()) < 5e6
    assert not re.findall(r'<(?:script|link|img|iframe)[^>]* (?:src|href)="', page)


def test_a_page_says_what_a_box_is(tmp_path: Path) -> None:
    save_steps({"gpipe": pipeline(), "again": pipeline()}, tmp_path / "step.html")
    said = opened(tmp_path / "step.html", POINT.replace("ACROSS", "110").replace("DOWN", "88"))
    assert "F0, forward" in said
    assert "did not wait" in said
    opened(tmp_path / "step.html", width=400)


def test_names_in_a_lane_do_not_cover_each_other(tmp_path: Path) -> None:
    step = random_step(60, 3)
    overlapping = replace(step, start=step.start - 2 * (step.finish - step.start).clip(max=step.start / 2))
    save_steps({"": overlapping}, tmp_path / "step.html")
    ask = """
      const texts = [...Bokeh.documents[0]._all_models.values()].find((each) => each.data?.ink).data;
      const figure = Bokeh.documents[0].roots()[0], scale = figure.inner_width / figure.x_range.end;
      const spans = texts.x.map((x, row) => [texts.y[row], scale * x, 3.5 * texts.text[row].length]);
      const covers = ([y, x, half], [of, other, wide]) => y === of && Math.abs(x - other) < half + wide - 0.01;
      const covered = spans.some((one, row) => spans.slice(0, row).some((each) => covers(one, each)));
      return JSON.stringify([spans.length > 5, covered]);
    """
    assert opened(tmp_path / "step.html", ask) == "[true,false]"


def test_what_moved_is_summed_up_by_module() -> None:
    graph = replace(toy_graph([1, 2, 3], [(0, 1), (1, 2)]), names=("a.b.c/mm", "a.b.d/mm", "e/mm"))
    simulator = Simulator(Problem(graph, toy_cluster(2)))
    before, after = simulator.timeline([0, 0, 0]), simulator.timeline([1, 1, 0])
    assert moves(before, after) == [Move("a.b", ("gpu:0", "gpu:1"), ops=2, seconds=3.0)]
    assert "<b>" not in moves_table(["<b>", "after"], before, after)
    assert moves(before, before) == []
    assert moves(pipeline(), pipeline()) == []


def test_what_moved_counts_a_parameter_once() -> None:
    graph = toy_graph([1, 1, 1], [(0, 1), (1, 2)], weights=[2**20, 2**21], weight_uses=[(0, 0), (1, 0), (2, 0), (2, 1)])
    simulator = Simulator(Problem(graph, toy_cluster(2)))
    before, after = simulator.timeline([0, 0, 0]), simulator.timeline([1, 1, 1])
    assert [move.weights for move in moves(before, after)] == [{0, 1}]
    assert "They use 3.0 MiB of parameters" in moves_table(["one", "two"], before, after)


def test_two_plans_are_drawn_below_one_another(tmp_path: Path) -> None:
    graph = tmp_path / "small.graph.json"
    save_graph(random_graph(20, seed=0), graph)
    plans = [tmp_path / f"{name}.plan.json" for name in ("first", "second")]
    for plan, placer in zip(plans, ("heft", "single_device"), strict=True):
        placelab.place(graph, cluster="p100x2", placer=placer, runtime="ideal", out=plan)
    page = tmp_path / "both.html"
    placelab.simulate(graph, plans[0], cluster="p100x2", gantt=page, against=plans[1])
    text = page.read_text()
    assert re.search(r"One training step takes [\d.]+ .?s \(first\), [\d.]+ .?s \(second\)\.", text)
    assert "times the shortest" in text
    assert "What moved where" in text
    assert text.index("<h3>first</h3>") < text.index("<h3>second</h3>")
    opened(page)
