"""What plans are worth by each objective, and that the best of one is not the best of another."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from envs.objectives.latency import Latency
from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator
from evaluation.comparing.compare import compare
from evaluation.comparing.comparison import Comparison, comparison_tables
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.tables.plan_latency import PlanLatency
from graphs.cluster import Cluster
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import Problem, objective_of
from placers.contract.placer import Placer
from placers.data_parallel import DataParallel
from placers.gpipe import GPipe
from placers.single_device import SingleDevice
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.evaluation.some_records import SOME, to_text
from tests.oracle.toys import toy_cluster, toy_graph

MACHINES: list[Placer | str] = [GPipe(micro_batches=8), DataParallel(devices=1, micro_batches=8)]


def fleet(cluster: Cluster, stages: int = 4, objective: str = "step-time") -> Problem:
    """Eight requests, one in each micro-batch: a second in each layer, and a byte from one to the next."""
    problem = Pipeline(stages, 8, forward=1, is_training=False, activation=1).problem(cluster)
    graph = replace(problem.graph, batch_law=BatchLaw(samples=8))
    return replace(problem, graph=graph, objective=objective_of(objective))


def latency(problem: Problem, plan: Plan) -> PlanLatency:
    found = PlanLatency.of(problem, plan)
    assert found is not None
    return found


def test_the_split_with_the_best_throughput_answers_one_request_later_than_one_machine_alone() -> None:
    slow = servers(2, latency=1.0, bandwidth=1.0)  # two seconds from one machine to the other
    comparison = compare(MACHINES, [fleet(slow)], quiet=True)
    split, alone = comparison.records
    assert alone.step_seconds == 8 * 4
    assert split.step_seconds == pytest.approx(2 * 8 + 2 + 2)  # two layers for each request; then the last one's way
    assert alone.latency_seconds == split.alone_seconds == alone.alone_seconds == 4
    assert split.latency_seconds == 4 + 2
    assert split.samples / split.step_seconds > alone.samples / alone.step_seconds
    assert comparison.latency_over_alone.tolist() == [[1.5, 1.0]]


def test_the_comparison_shows_all_three_objectives_and_which_plan_is_best_by_each() -> None:
    comparison = compare(MACHINES, [fleet(servers(2, latency=1.0, bandwidth=1.0))], quiet=True)
    text = to_text(comparison_tables(comparison), width=100)
    by_objective = text.partition("By each objective")[2]
    lines = {line.split()[0]: line.split()[1:] for line in by_objective.splitlines() if ":" in line}
    assert lines["gpipe:micro_batches=8"] == ["20.0", "s", "0.4", "6.00", "s", "1", "1.50"]
    assert lines["data_parallel:devices=1,micro_batches=8"] == ["32.0", "s", "0.2", "4.00", "s", "1", "1.00"]
    assert max(map(len, by_objective.splitlines())) <= 100


def test_which_plan_wins_depends_on_the_objective() -> None:
    cluster = servers(2, latency=1.0, bandwidth=1.0)
    best = {}
    for objective in ("step-time", "throughput", "latency"):
        found = compare(MACHINES, [fleet(cluster, objective=objective)], quiet=True)
        best[objective] = found.summary()[0].placer
    assert best["step-time"] == best["throughput"] == "gpipe:micro_batches=8"
    assert best["latency"] == "data_parallel:devices=1,micro_batches=8"


def test_alone_is_the_fastest_device_that_holds_everything() -> None:
    problem = Pipeline(4, 2, activation=1, weights=100).problem(servers(2))
    fast, slow = problem.cluster.devices
    halved = replace(fast, flops_per_second=fast.flops_per_second / 2)
    small = replace(fast, memory_bytes=300.0)
    plan = GPipe(micro_batches=2).place(problem).plan
    for devices, seconds in (((fast, slow), 4), ((fast, replace(halved, name=slow.name)), 4)):
        on = replace(problem, cluster=replace(problem.cluster, devices=devices))
        assert latency(on, plan).seconds == Latency().of_plan(on, plan)
        assert latency(on, plan).alone_seconds == seconds
    on = replace(problem, cluster=replace(problem.cluster, devices=(small, replace(halved, name=slow.name))))
    assert latency(on, plan).alone_seconds == 8
    on = replace(problem, cluster=replace(problem.cluster, devices=(small, replace(small, name=slow.name))))
    assert latency(on, plan).alone_seconds == np.inf
    assert SimulatedPlan.of(on, plan).record.alone_seconds is None


def test_a_placement_on_one_device_is_that_device_alone() -> None:
    problem = Problem(toy_graph([1, 2, 3], [(0, 1), (1, 2)]), toy_cluster(2))
    record = SimulatedPlan.by(SingleDevice(), problem).record
    assert record.latency_seconds == record.alone_seconds == Simulator(problem).seconds([[0, 0, 0]])[0] == 6
    assert record.samples == record.micro_batch_samples == 0


def test_samples_that_are_pipelined_anyway_have_no_latency() -> None:
    problem = replace(Pipeline(2).problem(), objective=objective_of("max-load"))
    assert PlanLatency.of(problem, SingleDevice().place(problem).plan) is None
    assert "By each objective" not in to_text(compare([SingleDevice()], [problem], quiet=True))


def test_records_without_latencies_are_shown_as_before() -> None:
    assert "By each objective" not in to_text(Comparison(SOME))


def test_over_several_problems_there_is_a_mean_with_its_interval(tmp_path: Path) -> None:
    problems = [
        fleet(servers(2, latency=latency, bandwidth=1.0), stages) for latency in (1.0, 3.0) for stages in (4, 6, 8)
    ]
    comparison = compare(MACHINES, problems, quiet=True, journal=tmp_path / "journal.jsonl")
    text = to_text(comparison_tables(comparison), width=100).partition("By each objective")[2]
    assert "1.00 [1.00, 1.00]" in text
    expected = [(4 + 2) / 4, (6 + 2) / 6, (8 + 2) / 8, (4 + 4) / 4, (6 + 4) / 6, (8 + 4) / 8]
    assert comparison.latency_over_alone[:, 0].tolist() == pytest.approx(expected)
    again = compare(MACHINES, problems, quiet=True, journal=tmp_path / "journal.jsonl")  # from the journal
    assert again.latency_over_alone.tolist() == comparison.latency_over_alone.tolist()
