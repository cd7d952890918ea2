"""Throughput and latency: by hand, of placements, and of plans in stages and micro-batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.objectives import evaluate_objective, evaluator_of, rate_of
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY, Schedule
from envs.simulation.simulator import Simulator, simulate
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import Problem, objective_of
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.oracle.toys import random_graph, toy_cluster, toy_graph


def of_samples(problem: Problem, samples: int, objective: str) -> Problem:
    """The problem, of a step with that many samples, and an objective."""
    graph = replace(problem.graph, batch_law=BatchLaw(samples))
    return replace(problem, graph=graph, objective=objective_of(objective))


@given(seed=st.integers(0, 99), samples=st.integers(1, 64))
def test_throughput_is_the_step_time_per_sample(seed: int, samples: int) -> None:
    problem = of_samples(Problem(random_graph(12, seed), toy_cluster(2)), samples, "throughput")
    placements = np.random.default_rng(seed).integers(2, size=(5, 12))
    found = evaluator_of(problem).run_batch(placements).step_seconds
    assert found.tolist() == (Simulator(problem).seconds(placements) / samples).tolist()
    assert evaluate_objective(problem, Plan.of(placements[0])) == found[0]
    assert evaluate_objective(problem, Plan.of(placements[0]), 3.0) == 3.0 / samples


@pytest.mark.parametrize("objective", ["throughput", "step-time"])
def test_only_a_rate_asks_for_the_samples(objective: str) -> None:
    problem = Problem(random_graph(5, 1), toy_cluster(2), objective=objective_of(objective))
    if objective == "step-time":
        assert evaluator_of(problem).seconds(np.zeros((1, 5), np.int64))[0] > 0
        return
    with pytest.raises(InputError, match="does not say how many samples"):
        evaluator_of(problem)
    with pytest.raises(InputError, match="does not say how many samples"):
        evaluate_objective(problem, Plan.of([0] * 5))


def test_rates_name_their_unit() -> None:
    assert rate_of("throughput") == "samples/s"
    assert {rate_of(other) for other in ("latency", "max-load", "step-time", "mine.py:build", "a, b")} == {""}


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("micro_batches", [1, 4, 8])
@pytest.mark.parametrize("order", ["gpipe", "early_backward_a"])
def test_of_a_pipeline_of_equal_stages(stages: int, micro_batches: int, order: str) -> None:
    chain = Pipeline(stages, micro_batches, forward=2.0, backward=3.0, activation=1.0)
    problem, plan = chain.problem(servers(stages, bandwidth=4.0)), chain.plan(order)
    sent = 1.0 / 4.0  # seconds, of a micro-batch
    latency = evaluate_objective(of_samples(problem, 16, "latency"), plan)
    assert latency == pytest.approx(stages * 2.0 + (stages - 1) * sent, rel=1e-12)
    free = of_samples(chain.problem(), 16, "throughput")
    assert evaluate_objective(free, plan) == pytest.approx((micro_batches + stages - 1) * 5.0 / 16, rel=1e-12)


def test_what_the_order_of_passes_puts_before_counts_as_latency() -> None:
    chain = Pipeline(4, 2, forward=(2.0, 1.0, 2.0, 1.0))  # stages 0 and 2 on one device, 1 and 3 on the other
    problem = of_samples(chain.problem(servers(2)), 4, "latency")
    plan = chain.plan("interleaved", ranks=((0, 2), (1, 3)))
    timeline = simulate(problem, plan)
    assert timeline.expansion is not None
    first = (timeline.expansion.micro_batch == 0) & (timeline.expansion.problem.graph.phase == Phase.FORWARD)
    # stage 2 begins at 4 seconds, after the second micro-batch has passed stage 0, though its input is there at 3
    assert evaluate_objective(problem, plan) == timeline.finish[first].max() == 7.0
    assert evaluate_objective(problem, replace(plan, schedule=replace(plan.schedule, order=AS_READY))) == 6.0


@given(seed=st.integers(0, 50))
def test_latency_of_a_placement_is_that_of_its_forward_ops_alone(seed: int) -> None:
    chain = Pipeline(3, forward=2.0, backward=3.0, activation=1.0)
    problem = of_samples(chain.problem(servers(3, bandwidth=4.0)), 16, "latency")
    forward = replace(chain, is_training=False).problem(servers(3, bandwidth=4.0))
    units = np.random.default_rng(seed).integers(3, size=(4, 3))
    found = evaluator_of(problem)
    assert found.seconds(units).tolist() == Simulator(forward).seconds(units).tolist()
    assert found.run_batch(units).peak_bytes.tolist() == Simulator(problem).run_batch(units).peak_bytes.tolist()
    assert evaluate_objective(problem, Plan.of_units(problem, units[0])) == found.seconds(units)[0]


def test_a_plans_own_order_counts() -> None:
    graph = toy_graph([1, 1, 5], [(0, 2)])  # the first op is in a hurry: c runs on the other device
    for objective in ("throughput", "latency"):
        problem = of_samples(Problem(graph, toy_cluster(2)), 1, objective)
        hurried, late = (Plan.of([0, 0, 1], order=order) for order in ([0, 1, 2], [1, 0, 2]))
        assert evaluate_objective(problem, late) == evaluate_objective(problem, hurried) + 1  # type: ignore[operator]


def test_other_objectives_judge_the_expanded_plan() -> None:
    chain = Pipeline(2, 4, forward=2.0, backward=3.0)
    problem = replace(chain.problem(), objective=objective_of("max-load"))
    assert evaluate_objective(problem, chain.plan("gpipe")) == pytest.approx(4 * 5.0)
    replicated = Plan(((0, 1),) * len(problem.graph), schedule=Schedule(micro_batches=2))
    assert evaluate_objective(problem, replicated) == pytest.approx(4 * 2 * 5.0 / 2)
