import numpy as np
import pytest

from envs.simulator import Simulator
from evaluation.comparison import Comparison
from evaluation.tables import busy_shares, link_shares, plan_table, summary_table, to_text
from graphs.problem import Problem
from tests.evaluation.some_records import SOME
from tests.oracle.toys import Toy, toy_cluster, toy_graph


def test_several_problems_show_step_times_and_a_summary() -> None:
    text = to_text(Comparison(SOME))
    assert "4.00 s" in text
    assert "(1.00 s)" in text  # does not fit
    assert "2/2" in text
    assert "1/2" in text
    assert "1,000" in text
    assert "runs/demo" not in text
    assert "\x1b" not in text


def test_a_single_problem_is_a_row_per_placer() -> None:
    text = to_text(Comparison(SOME[3:]))
    assert "large@two" in text
    assert "over best" in text
    rows = [line.split() for line in text.splitlines()]
    assert next(row for row in rows if row[:1] == ["annealing"])[1:4] == ["1.50", "s", "1.00"]
    assert "no" in next(row for row in rows if row[:1] == ["metis"])


def test_a_mean_of_one_problem_has_no_interval() -> None:
    assert "[" not in to_text(summary_table(Comparison(SOME[:3]))).partition("Geometric")[0]


def test_a_plan_shows_memory_load_and_links(four_ops_two_devices: Toy) -> None:
    toy = four_ops_two_devices
    timeline = Simulator(toy.problem).timeline(toy.best_placement)
    text = to_text(plan_table(timeline, 6.0))
    assert "gpu:0" in text
    assert "/ 100 B" in text
    assert "One step takes 6.00 s, 1.00 times the lower bound of 6.00 s." in text
    assert "busiest link" in text
    assert "does not fit" not in text


def test_a_plan_on_one_device_sends_nothing_and_may_not_fit() -> None:
    problem = Problem(toy_graph([1, 1], [(0, 1)], output_bytes=[8, 8]), toy_cluster(2, memory=10))
    text = to_text(plan_table(Simulator(problem).timeline([0, 0]), 1.0))
    assert "Nothing is sent between devices." in text
    assert "does not fit: gpu:0 needs 16 bytes of its 10 bytes" in " ".join(text.split())


def test_shares_of_devices_and_links(four_ops_two_devices: Toy) -> None:
    timeline = Simulator(four_ops_two_devices.problem).timeline([0, 0, 1, 1])
    np.testing.assert_allclose(busy_shares(timeline), [4 / 6, 4 / 6])
    assert list(link_shares(timeline).values()) == pytest.approx([2 / 6])  # one second each for two outputs


def test_copies_of_one_multicast_transfer_count_once() -> None:
    cluster = toy_cluster(3, shared_out=True, multicast=True)
    problem = Problem(toy_graph([1, 1, 1], [(0, 1), (0, 2)]), cluster)
    timeline = Simulator(problem).timeline([0, 1, 2])
    assert len(timeline.transfers) == 2
    assert list(link_shares(timeline).values()) == pytest.approx([1 / 3])


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(force_terminal=True, width=200)
    with console.capture() as capture:
        console.print(Comparison(SOME))
    assert "\x1b[3" not in capture.get().replace("\x1b[3m", "")  # italics are no colour
