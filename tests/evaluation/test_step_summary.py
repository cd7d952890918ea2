"""The summary of a step: its numbers are sums over the timeline, and its alternatives what the simulator says."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from markupsafe import escape
from torch import Tensor, nn

from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator, simulate
from envs.simulation.step_shares import WORK
from evaluation.drawing.timeline_plots import save_steps
from evaluation.tables.alone import all_on_one, fastest_alone
from evaluation.tables.plan_table import plan_table
from evaluation.tables.step_summary import StepSummary, TimeSpent, largest_held, largest_sent
from evaluation.tables.summary_rows import held_rows, sent_rows, time_rows
from graphs.capture.forward import capture
from graphs.problem import Problem
from tests.drawn import examples
from tests.envs.expansion.random_plans import planned
from tests.evaluation.some_records import to_text
from tests.oracle.toys import Toy, toy_cluster, toy_graph


def cells_of(summary: StepSummary) -> list[str]:
    """The cells of its tables."""
    tables = (time_rows(summary.time), sent_rows(summary), held_rows(summary))
    return [cell for _, rows in tables for row in rows for cell in row]


@settings(max_examples=examples(60, 9), deadline=None, suppress_health_check=list(HealthCheck))
@given(planned())
def test_its_parts_add_up_to_what_the_timeline_holds(case: tuple[Problem, Plan]) -> None:
    problem, plan = case
    timeline = simulate(problem, plan)
    time, sent = TimeSpent.of(timeline), largest_sent(timeline)
    computing = [number for number, name in enumerate(time.names) if name in WORK]
    seconds = time.shares * timeline.step_seconds
    np.testing.assert_allclose(seconds.sum(axis=1), timeline.step_seconds, atol=1e-9)
    np.testing.assert_allclose(seconds[:, computing].sum(axis=1), timeline.busy_seconds, atol=1e-9)
    moved = timeline.problem.graph.moved_bytes[timeline.transfers.output]
    assert sum(each.size for each in sent) == pytest.approx(moved.sum())
    assert time.sent.sum() <= moved.sum() * (1 + 1e-9), "a multicast transfer counts once"
    assert sum(each.times for each in sent) == len(timeline.transfers)
    for device, peak in enumerate(timeline.peak_bytes.tolist()):
        held = largest_held(timeline, device)
        assert sum(each.size for each in held) == pytest.approx(peak, abs=1e-6)
        assert [each.size for each in held] == sorted((each.size for each in held), reverse=True)
    given_problem = problem if timeline.expansion is None else timeline.expansion.given
    outcomes = Simulator(given_problem).run_batch(all_on_one(given_problem))
    fitting = outcomes.step_seconds[outcomes.fits]
    alone = fastest_alone(given_problem)
    assert (alone is None) == (len(fitting) == 0)
    assert alone is None or alone.seconds == fitting.min()


def test_the_answers_of_four_ops_on_two_devices(four_ops_two_devices: Toy) -> None:
    toy = four_ops_two_devices
    timeline = Simulator(toy.problem).timeline([0, 0, 1, 1])
    summary = StepSummary.of(timeline)
    alone = Simulator(toy.problem).run_batch(all_on_one(toy.problem)).step_seconds.min()
    assert summary.speedup == pytest.approx(alone / 6)
    heads, rows = time_rows(summary.time)
    assert heads == ["device", "forward", "transfers", "bubble", "sends"], "nothing is launched"
    assert [row[1] for row in rows] == ["67%", "67%"]
    assert [(sent.source, sent.destination, sent.times) for sent in summary.sent] == [("gpu:0", "gpu:1", 1)] * 2
    text = " ".join(to_text(plan_table(timeline, 6.0, 7.5)).split())
    for cell in cells_of(summary):
        assert cell in text
    assert summary.over_alone in text


def test_unlike_devices_of_which_only_the_slower_holds_everything() -> None:
    graph = toy_graph([1, 1], [(0, 1)], output_bytes=[8, 8])
    cluster = toy_cluster(2)
    fast, slow = cluster.devices
    unlike = replace(cluster, devices=(replace(fast, flops_per_second=2.0, memory_bytes=10.0), slow))
    problem = Problem(graph, unlike)
    alone = fastest_alone(problem)
    assert alone is not None
    assert alone == ("gpu:1", 2.0, ("gpu:0",))
    slower = StepSummary.of(Simulator(problem).timeline([1, 1]))
    alone_takes = "The fastest device alone, gpu:1, takes 2.00 s (gpu:0 has too little memory)"
    assert slower.over_alone == f"{alone_takes}, 1.00 times as long."


def test_a_step_that_no_device_holds_alone() -> None:
    problem = Problem(toy_graph([1, 1], [], weights=[6, 6], weight_uses=[(0, 0), (1, 1)]), toy_cluster(2, memory=10))
    summary = StepSummary.of(Simulator(problem).timeline([0, 1]))
    assert summary.alone is None
    assert np.isnan(summary.speedup)
    assert "No device holds everything alone." in to_text(plan_table(Simulator(problem).timeline([0, 1]), 1.0, 1.0))
    assert not summary.sent


def test_the_page_of_a_step_begins_with_the_summary(four_ops_two_devices: Toy, tmp_path: Path) -> None:
    timeline = Simulator(four_ops_two_devices.problem).timeline([0, 0, 1, 1])
    save_steps({"": timeline}, tmp_path / "step.html")
    page = (tmp_path / "step.html").read_text(encoding="utf-8").partition("<body>")[2]
    summary = StepSummary.of(timeline)
    assert f"{summary.speedup:.2f} times" in page
    assert f"{6 / summary.bound_seconds:.2f} times the lower bound" in page
    for cell in cells_of(summary):
        assert str(escape(cell)) in page.replace("<wbr>", "")
    assert page.index("Largest transfers") < page.index('<div class="chart"')
    save_steps({"one": timeline, "two": timeline}, tmp_path / "two.html")
    assert "Largest transfers" not in (tmp_path / "two.html").read_text(encoding="utf-8"), "of which of them?"


class _Keeping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        kept = self.linear(x)  # the variable holds it to the end, though nothing reads it after exp
        return kept.exp().sin()  # type: ignore[no-any-return]


def test_what_the_code_keeps_is_named_by_the_op_that_made_it() -> None:
    graph = capture(_Keeping(), (torch.empty(100, 4),), name="keeping")
    timeline = Simulator(Problem(graph, toy_cluster(1), op_seconds=np.ones((len(graph), 1)))).timeline([0] * len(graph))
    size = 100 * 4 * 4.0
    assert set(largest_held(timeline, 0)[:3]) == {
        ("linear/mm", "output, kept by the code", size), ("exp", "output", size), ("sin", "output", size),
    }  # fmt: skip
    inputs = size
    assert timeline.peak_bytes[0] == pytest.approx(inputs + sum(each.size for each in largest_held(timeline, 0)))
