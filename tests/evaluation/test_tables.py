from dataclasses import replace

import msgspec
import numpy as np
import pytest

from envs.simulation.simulator import Simulator, simulate
from evaluation.comparing.comparison import Comparison, summary_table
from evaluation.tables.plan_table import link_shares, plan_sentences, plan_table
from evaluation.tables.step_chart import StepChart
from evaluation.tables.step_summary import TimeSpent
from graphs.cluster import FREE
from graphs.foundation.by_name import build
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import Problem
from placers.gpipe import GPipe
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.evaluation.some_records import SOME, to_text
from tests.oracle.toys import Toy, toy_cluster, toy_graph
from tests.papers.test_dapple import chain_of


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
    assert next(row for row in rows if row[:1] == ["annealing"])[1:5] == ["1.50", "s", "-", "1.00"]
    assert "no" in next(row for row in rows if row[:1] == ["metis"])


def test_a_mean_of_one_problem_has_no_interval() -> None:
    assert "[" not in to_text(summary_table(Comparison(SOME[:3]))).partition("Geometric")[0]


def test_tables_say_what_timed_the_ops_and_what_placers_note() -> None:
    timed = [msgspec.structs.replace(one, cost_model="roofline") for one in SOME]
    assert "Cost model: roofline." in to_text(Comparison(tuple(timed)))
    timed[3:] = [msgspec.structs.replace(one, cost_model="recorded", notes=("A start failed.",)) for one in SOME[3:]]
    text = to_text(Comparison(tuple(timed)))
    assert "Cost models: roofline (small@two); recorded (large@two)." in text
    assert "metis on large@two: A start failed." in text
    assert "metis: A start failed." in to_text(Comparison(tuple(timed[3:])))
    assert "Cost model" not in to_text(Comparison(SOME)), "records of an earlier file do not say it"


def test_a_step_that_takes_no_time_gives_no_infinite_ratio() -> None:
    nothing = [msgspec.structs.replace(SOME[0], step_seconds=0.0, lower_bound_seconds=0.0),
               msgspec.structs.replace(SOME[1], lower_bound_seconds=0.0)]  # fmt: skip
    assert "inf" not in to_text(Comparison(tuple(nothing)))


def test_a_robust_comparison_ranks_by_the_median_under_noise() -> None:
    medians = {"gdp:checkpoint=runs/demo": 5.0, "metis": 4.5, "annealing": 2.6}
    robust = tuple(
        msgspec.structs.replace(one, robust_seconds=medians[one.placer], worst_seconds=9.0, free_seconds=1.5)
        for one in SOME[:3]
    )
    comparison = Comparison(robust)
    assert [row.placer for row in comparison.summary()] == ["annealing", "metis", "gdp:checkpoint=runs/demo"]
    lines = [line.split() for line in to_text(comparison).splitlines()]
    assert next(line for line in lines if line[:1] == ["placer"])[1:6] == ["step", "program", "median", "worst", "free"]
    row = next(line for line in lines if line[:1] == ["annealing"])
    assert row[1:11] == ["2.50", "s", "-", "2.60", "s", "9.00", "s", "1.50", "s", "1.00"]
    two = tuple(msgspec.structs.replace(one, problem="other@two") for one in robust)
    assert "Median step time under noise, less is better" in to_text(Comparison((*robust, *two)))


def test_another_objective_ranks_and_has_its_column() -> None:
    own = tuple(
        msgspec.structs.replace(one, objective="my.py:build", objective_value=1 / one.step_seconds) for one in SOME[:3]
    )
    comparison = Comparison(own)
    assert comparison.summary()[0].placer == "metis"
    assert "my.py:build" in to_text(comparison)


def test_a_plan_shows_memory_load_and_links(four_ops_two_devices: Toy) -> None:
    toy = four_ops_two_devices
    timeline = Simulator(toy.problem).timeline(toy.best_placement)
    text = to_text(plan_table(timeline, 6.0, 7.5))
    assert "gpu:0" in text
    assert "/ 100 B" in text
    assert "A lower bound for all op placements is 6.00 s, and the step 1.00 times as long." in text
    assert "busiest link" in text
    assert "Cost model: roofline." in text
    own = "Order: longest_path. In PyTorch's own order (program) the same placement takes 7.50 s (1.25 times as long)."
    assert own in " ".join(text.split())
    assert "does not fit" not in text
    given = Simulator(toy.problem, order=[0, 1, 2, 3]).timeline(toy.best_placement)
    assert "Order: a number for each op." in to_text(plan_table(given, 6.0, 7.5))
    program = Simulator(toy.problem, order="program").timeline(toy.best_placement)
    assert "Order: program, PyTorch's own." in to_text(plan_table(program, 6.0, 6.0))


def test_a_comparison_says_under_which_orders_its_step_times_hold() -> None:
    assert "Order: fifo." in to_text(Comparison(SOME)), "what an earlier file holds was run so"
    assert "PyTorch" not in " ".join(Comparison(SOME).ordering)
    ordered = [
        msgspec.structs.replace(
            one, order="given" if one.placer == "annealing" else "longest_path", program_seconds=1.5 * one.step_seconds
        )
        for one in SOME
    ]
    comparison = Comparison(tuple(ordered))
    assert "Orders: longest_path (gdp, metis); given (annealing)." in to_text(comparison)
    assert [row.program.value for row in comparison.summary()] == pytest.approx([1.5] * 3)
    single = to_text(Comparison(tuple(ordered[:3])))
    row = next(line.split() for line in single.splitlines() if line.split()[:1] == ["annealing"])
    assert row[1:5] == ["2.50", "s", "3.75", "s"]


def test_a_chart_shows_when_each_device_works(four_ops_two_devices: Toy) -> None:
    timeline = Simulator(four_ops_two_devices.problem).timeline((0, 0, 1, 1))
    first, second, legend = to_text(StepChart(timeline)).splitlines()[:3]
    columns = len(first.split()[1])
    for line, begin, end in ((first, 0, 4), (second, 2, 6)):  # seconds of the six that the step takes
        busy = [i for i, mark in enumerate(line.split()[1]) if mark == "f"]
        assert busy == list(range(round(begin * columns / 6), round(end * columns / 6)))
    assert "f forward" in legend
    assert "backward" not in legend
    assert legend.rstrip().endswith("6.00 s")


def test_a_plan_on_one_device_sends_nothing_and_may_not_fit() -> None:
    problem = Problem(toy_graph([1, 1], [(0, 1)], output_bytes=[8, 8]), toy_cluster(2, memory=10))
    text = to_text(plan_table(Simulator(problem).timeline([0, 0]), 1.0, 2.0))
    assert "Nothing is sent between devices." in text
    assert "This plan does not fit: too little memory on gpu:0." in " ".join(text.split())


def test_shares_of_devices_and_links(four_ops_two_devices: Toy) -> None:
    timeline = Simulator(four_ops_two_devices.problem).timeline([0, 0, 1, 1])
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


@pytest.mark.parametrize("free", [np.s_[:, :], np.s_[0, :]])
def test_links_without_contention_are_told_of_as_others_are(free: tuple[slice, slice]) -> None:
    """Such a link has no channel; on none of them do several readers share one transfer."""
    graph = chain_of([2.0, 2.0, 2.0], [4.0, 6.0, 0.0], [1.0, 1.0, 1.0]).graph()
    serial = toy_cluster(3)
    channel = serial.channel.copy()
    channel[free] = FREE
    problem = Problem(graph, replace(serial, channel=channel, gap=np.zeros(0), multicast=np.zeros(0, np.bool_)), "sgd")
    plan = build("placers", "gpipe:micro_batches=2").place(problem).plan
    told, by_channels = simulate(problem, plan), simulate(replace(problem, cluster=serial), plan)
    assert TimeSpent.of(told).sent.tolist() == TimeSpent.of(by_channels).sent.tolist()
    assert TimeSpent.of(told).sent.sum() == 2 * (4.0 + 6.0), "outputs there, and gradients of the same sizes back"
    assert "The busiest link, " in to_text(plan_table(told, 1.0, 1.0))


@pytest.mark.parametrize(("samples", "micro_batches", "is_said"), [(0, 4, True), (8, 4, False), (0, 1, False)])
def test_a_batch_of_unknown_size_is_said_to_be_divided_all_the_same(
    samples: int, micro_batches: int, is_said: bool
) -> None:
    problem = Problem(replace(Pipeline(stages=2).graph(), batch_law=BatchLaw(samples)), servers(2))
    timeline = simulate(problem, GPipe(micro_batches=micro_batches).place(problem).plan)
    said = " ".join(plan_sentences(timeline, 1.0, 1.0))
    assert ("How many samples a step of chain2 has is not known: its batch is assumed to divide" in said) == is_said
