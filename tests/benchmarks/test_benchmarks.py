"""The benchmarks measure what they say."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from envs.simulation.simulator import Simulator
from tests.benchmarks import (
    capture_speed,
    environment_share,
    environment_speed,
    expansion_speed,
    items_speed,
    planner_speed,
    planning_speed,
    run,
    search_speed,
    simulator_speed,
    splitting_speed,
)
from tests.benchmarks.figures import Figure, at_least, at_most, reported
from tests.benchmarks.given_up import early_stop, retiming
from tests.benchmarks.given_up.given_order import GivenOrder
from tests.benchmarks.workloads import placements, problem
from tests.placers.splits.networks import mlp


def test_a_figure_knows_whether_it_holds() -> None:
    assert at_least(2, "a", 2.0).holds
    assert not at_least(2, "a", 1.9).holds
    assert at_most(2, "a", 2.0).holds
    assert not at_most(2, "a", 2.1).holds
    assert at_least(20_000, "a", 1.0).bound == ">= 20,000"
    assert reported("a", 1.0).bound == ""


def test_the_recurrence_in_the_simulators_own_order_gives_its_step_time() -> None:
    simulator = Simulator(problem(120))
    recurrence = GivenOrder(simulator)
    for placement in placements(120, 20):
        timeline = simulator.timeline(placement)
        order = np.argsort(timeline.start, kind="stable")
        assert recurrence.step_seconds(order, placement[:, None])[0] == timeline.step_seconds


def test_every_size_is_held_against_both_peers_and_every_graph_timed_under_every_order() -> None:
    figures = list(simulator_speed.measure(sizes=(40,), graphs=["layered:depth=4,breadth=2"]))
    assert [figure.value > 0 for figure in figures] == [True] * 18
    assert sum("Placeto" in figure.name or "SimPy" in figure.name for figure in figures) == 2
    assert sum("longest path" in figure.name or "given order" in figure.name for figure in figures) == 3


@pytest.mark.slow  # plans ten times
def test_every_planner_is_timed_on_both_clusters() -> None:
    assert [figure.value >= 0 for figure in planner_speed.measure(layers=6)] == [True] * 10


@pytest.mark.slow  # captures and plans models of several sizes
def test_planning_is_timed_over_sizes() -> None:
    figures = list(planning_speed.measure(((3, 1, 2), (4, 1, 2)), budget=14))
    assert [figure.bound for figure in figures] == ["", "", "", "<= 10", "<= 60", ""]
    assert all(figure.value > 0 for figure in figures)


def test_cuts_are_timed_and_compared_with_the_optimum() -> None:
    figures = list(splitting_speed.measure({"MLP": mlp(2, 64, 32)}, "transformer:layers=1,batch=8"))
    assert [figure.bound for figure in figures] == ["<= 10", "<= 2", "", "", ""]
    assert figures[3].value >= figures[4].value >= 0


def test_the_share_that_a_move_can_change_is_no_smaller_than_what_it_does() -> None:
    can, does = retiming.measure(ops=60, plans=3)
    assert 0 < does.value <= can.value < 1


def test_an_early_stop_cuts_slower_placements_alone() -> None:
    simulator = Simulator(problem(60))
    for placement in placements(60, 5):
        seconds = simulator.run(placement).step_seconds
        assert early_stop.share_saved(simulator, placement, seconds) == 0
        by_half, by_all = (early_stop.share_saved(simulator, placement, limit) for limit in (seconds / 2, 0))
        assert 0 <= by_half <= by_all < 1


def test_a_benchmark_that_fails_does_not_lose_the_figures_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> Iterator[Figure]:
        yield reported("before it fails", 1.0)
        raise RuntimeError("broken")

    modules = {"tests.benchmarks.one": fails, "tests.benchmarks.two": lambda: iter([at_most(1, "too slow", 2.0)])}
    monkeypatch.setattr(run, "import_module", lambda name: SimpleNamespace(measure=modules[name]))
    assert run.main(tmp_path / "bench.json", ["one", "two"]) == 1
    written = msgspec.json.decode((tmp_path / "bench.json").read_bytes(), type=list[Figure])
    assert [figure.name for figure in written] == ["before it fails", "too slow"]
    said = capsys.readouterr()
    assert "before it fails" in said.out
    assert "RuntimeError: broken" in said.err
    assert "failed: one" in said.err


def test_the_environment_is_a_part_of_a_training_step() -> None:
    (figure,) = environment_share.measure(sizes=(6,), graphs=[problem(12).graph])
    assert figure.bound == "<= 20"
    assert 0 < figure.value < 100


def test_steps_of_both_environments_are_counted() -> None:
    figures = list(environment_speed.measure(6, "layered:depth=4,breadth=2", steps=20, episodes=3))
    assert [figure.unit for figure in figures] == ["steps/s"] * 3 + ["plans/s"]
    assert 6 * figures[3].value < figures[2].value, "a plan takes more than six decisions on average"


def test_a_search_is_timed_and_compared_with_itself_in_plain_python() -> None:
    pair = ("layered:depth=4,breadth=2", "p100:devices=2")
    speed, rate, same = search_speed.measure(timed=((*pair, 2.0),), compared=(pair,), groups=16, simulations=50)
    assert speed.value > 0 < rate.value
    assert same.value == 1
    assert same.holds


def test_expansions_are_timed_for_a_captured_step_and_for_a_pipeline_of_whole_stages() -> None:
    figures = list(expansion_speed.measure("transformer:layers=2", 2, [(2, 3, 2)]))
    assert [figure.bound for figure in figures] == ["", "<= 150", "<= 15"] * 2 + ["<= 5", "", "<= 5", "<= 20", "<= 5"]
    assert all(figure.value > 0 for figure in figures)
    assert figures[3].value > figures[0].value


@pytest.mark.slow  # starts processes again and again
def test_workers_are_timed_on_items_of_each_length_and_against_each_other() -> None:
    assert len(list(items_speed.curve((0.01,), 0.05))) == 4
    figures = list(items_speed.measure(((0.05, 4, 20.0), (0.02, 4, 20.0)), busy=0.01, items=4))
    assert [figure.bound for figure in figures] == ["", "<= 20", "<= 20", ">= 1.7"]
    assert all(figure.value > 0 for figure in figures)


@pytest.mark.slow  # which take seconds
def test_a_capture_is_held_against_the_exporters() -> None:
    (figure,) = capture_speed.measure(specs=(capture_speed.WARM_UP,))
    assert figure.bound == ">= 8"
    assert figure.value > 0
