"""How plans fare under noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.simulation.robustness import robustness
from envs.simulation.simulator import Simulator, simulate
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import FIFO, RUNTIMES
from tests.drawn import examples
from tests.envs.expansion.random_plans import planned
from tests.oracle.strategies import Case, cases
from tests.oracle.toys import random_graph, toy_cluster, toy_graph


@settings(max_examples=examples(60, 9), deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_without_noise_every_draw_is_the_simulated_step(case: Case) -> None:
    problem = Problem(case.problem.graph, case.problem.cluster, op_seconds=case.op_seconds)
    plan = Plan.of(case.per_op(0), order=case.order)
    found = robustness(problem, plan, noise=0.0, draws=2)
    assert found.step_seconds == found.median_seconds == found.worst_seconds
    assert found.step_seconds == simulate(problem, plan).step_seconds
    assert found.step_seconds >= found.free_seconds or problem.graph.num_units > 2  # with more, order may help
    by_fifo = robustness(problem, replace(plan, order=FIFO), noise=0.0, draws=2)
    assert by_fifo.by_fifo is None
    assert found.by_fifo == (None if plan.order == FIFO else by_fifo)


def test_without_noise_every_draw_is_the_step_of_a_loop_which_sends_sums_of_gradients() -> None:
    graph = load_graph("rnnlm:layers=1,steps=3,hidden=8,batch=4", groups=8)
    problem = Problem(graph, load_cluster("p100x2"), runtime=RUNTIMES["parallelize"])
    assert len(problem.as_issued.graph.moved_bytes) > len(graph.moved_bytes)
    plan = Plan.of_units(problem, [0, 1] * 4)
    found = robustness(problem, plan, noise=0.0, draws=2)
    assert found.step_seconds == found.median_seconds == found.worst_seconds == simulate(problem, plan).step_seconds
    assert robustness(problem, plan, draws=4).worst_seconds > found.step_seconds


@settings(max_examples=examples(60, 9), deadline=None, suppress_health_check=list(HealthCheck))
@given(planned())
def test_without_noise_every_draw_is_the_simulated_step_of_a_whole_plan(case: tuple[Problem, Plan]) -> None:
    problem, plan = case
    found = robustness(problem, plan, noise=0.0, draws=2)
    assert found.step_seconds == found.median_seconds == found.worst_seconds
    assert found.step_seconds == simulate(problem, plan).step_seconds
    by_fifo = robustness(problem, replace(plan, order=FIFO), noise=0.0, draws=2)
    assert found.by_fifo == (None if plan.order == FIFO else by_fifo)


@settings(max_examples=examples(60, 9), deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_a_whole_plan_meets_the_factors_of_the_placement(case: Case) -> None:
    """In one micro-batch without replicas, all is the same to the bit."""
    placement = Plan.of(case.per_op(0), order=case.order)
    expanded = replace(placement, schedule=Schedule(all_reduce="direct"))
    assert simulate(case.problem, expanded).expansion is not None
    assert robustness(case.problem, expanded, draws=3) == robustness(case.problem, placement, draws=3)


def test_all_copies_of_an_op_have_its_factor() -> None:
    problem = Problem(toy_graph([3, 5], [(0, 1)]), toy_cluster(2))
    plan = Plan(((0, 1), (0, 1)), schedule=Schedule(micro_batches=4))
    whole, copies = robustness(problem, Plan.of([0, 0])), robustness(problem, plan)
    for field in ("step_seconds", "median_seconds", "worst_seconds", "free_seconds"):
        assert getattr(copies, field) == pytest.approx(getattr(whole, field) / 2)


def test_each_op_and_each_transfer_has_a_factor_of_its_own() -> None:
    problem = Problem(toy_graph([1, 2, 3], [(0, 1), (0, 2)], output_bytes=[4, 0, 0]), toy_cluster(2, latency=1.0))
    simulator = Simulator(problem)
    ops, outputs = np.array([[1.5, 1.0, 1.0], [1.0, 1.0, 2.0]]), np.array([[1.0, 1.0, 1.0], [1.1, 9.0, 9.0]])
    noisy = simulator.noisy_seconds([0, 0, 1], ops, outputs)
    assert noisy == pytest.approx([1.5 + 5 + 3, 1 + 5.5 + 6])
    assert simulator.seconds([[0, 0, 1]])[0] == 1 + 5 + 3  # as before


def test_the_same_seed_gives_the_same_numbers_and_more_noise_is_worse() -> None:
    problem = Problem(random_graph(200, 0), toy_cluster(4, memory=np.inf))
    plan = Plan.of_units(problem, np.random.default_rng(0).integers(0, 4, 200))
    one = robustness(problem, plan)
    assert one == robustness(problem, plan)
    assert (one.noise, one.draws) == (0.02, 32)
    assert one != robustness(problem, plan, seed=1)
    assert one.median_seconds <= one.worst_seconds <= robustness(problem, plan, noise=0.5).worst_seconds
    assert one.median_seconds == pytest.approx(one.step_seconds, rel=0.05)
    assert one.free_seconds < one.step_seconds  # transfers of a random placement wait for each other


@pytest.mark.parametrize(("noise", "draws"), [(-0.1, 3), (float("nan"), 3), (float("inf"), 3), (0.1, 0)])
def test_noise_and_draws_must_make_sense(noise: float, draws: int) -> None:
    problem = Problem(toy_graph([1], []), toy_cluster(1))
    with pytest.raises(InputError, match="expected noise >= 0 and at least one draw"):
        robustness(problem, Plan.of([0]), noise=noise, draws=draws)
    with pytest.raises(InputError, match="another graph"):
        robustness(problem, Plan.of([0, 0]))
