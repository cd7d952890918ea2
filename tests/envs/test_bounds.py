"""Lower bounds that are worth something; that they hold for random problems is tested next to the oracle."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.costs.costs import costs_of
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY, AllReduce, Schedule, Sharing, Update
from envs.simulation.bounds import lower_bound, path_bound, work_bound
from envs.simulation.simulator import Simulator, simulate
from graphs.op_graph import Phase
from graphs.problem import Problem
from graphs.runtime import runtime_of
from tests.drawn import examples
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.envs.expansion.random_plans import planned
from tests.oracle.toys import Toy, toy_cluster, toy_graph

brief = settings(max_examples=examples(100, 15), deadline=None, suppress_health_check=list(HealthCheck))


def test_a_chain_takes_its_length_and_its_launches() -> None:
    problem = Problem(toy_graph([1, 2, 3], [(0, 1), (1, 2)]), toy_cluster(2, launch=0.5))
    assert path_bound(problem, np.tile([[1.0], [2.0], [3.0]], 2)) == 7
    assert Simulator(problem).run([0, 0, 0]).step_seconds == 7


def test_a_chain_may_have_to_move() -> None:
    seconds = np.array([[1.0, 9.0], [9.0, 1.0]])
    problem = Problem(toy_graph([1, 1], [(0, 1)], output_bytes=[2, 0]), toy_cluster(2), op_seconds=seconds)
    assert lower_bound(problem) == 4  # with the transfer, not 2
    assert Simulator(problem).run([0, 1]).step_seconds == 4


def test_independent_ops_share_the_devices() -> None:
    problem = Problem(toy_graph([2, 2, 2, 2], []), toy_cluster(2))
    assert lower_bound(problem) == 4
    unequal = np.tile([1.0, 3.0], (4, 1))  # the first device is three times as fast
    assert work_bound(problem, unequal) == pytest.approx(3.0)
    assert Simulator(replace(problem, op_seconds=unequal)).run([0, 0, 0, 1]).step_seconds == 3


def test_a_thread_issues_one_op_after_another() -> None:
    """Where ops take no time to speak of, the bound is what the host takes, and a plan on one device is as fast."""
    problem = Problem(
        toy_graph([1e-9] * 3, [(0, 1), (0, 2)]), toy_cluster(2), runtime=runtime_of("parallelize:host=1s")
    )
    assert lower_bound(problem) == 3
    assert Simulator(problem).run([0, 0, 0]).step_seconds == pytest.approx(3)
    assert lower_bound(problem, Plan(((0, 1), (0, 1), (0, 1)))) == 1.5  # a process on each device


def test_units_stay_together() -> None:
    tied = Problem(toy_graph([2, 2], [], group=[0, 0]), toy_cluster(2))
    seconds = np.array([[1.0, 5.0], [5.0, 1.0]])
    assert work_bound(tied, seconds) == 3
    assert work_bound(Problem(toy_graph([2, 2], []), toy_cluster(2)), seconds) == 1


@brief
@given(
    planned(),
    st.sampled_from(get_args(Update)),
    st.sampled_from(get_args(AllReduce)),
    st.sampled_from(["ideal", "run:host=1s", "parallelize:host=1s", "replay:host=1s", "megatron:host=1s"]),
)
def test_no_plan_that_divides_the_batch_beats_the_bound_of_such_plans(
    case: tuple[Problem, Plan], update: Update, all_reduce: AllReduce, runtime: str
) -> None:
    problem, plan = case
    if not problem.cluster.is_cpu.any():  # which has no host
        problem = replace(problem, runtime=runtime_of(runtime))
    if plan.schedule.order == AS_READY or plan.schedule.zero:
        update = "step"  # versions of weights are those of passes in order, and are whole
    plan = replace(plan, schedule=replace(plan.schedule, update=update, all_reduce=all_reduce))
    assert lower_bound(problem, plan) <= simulate(problem, plan).step_seconds * (1 + 1e-9)


@pytest.mark.parametrize("order", ["as_ready", "gpipe", "early_backward_a"])
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("sharing", get_args(Sharing))
def test_no_pipeline_beats_it(order: str, replicas: int, sharing: Sharing) -> None:
    pipeline = Pipeline(3, 4, forward=[1, 2, 3], backward=2, activation=3, weights=5, update=1)
    plan = pipeline.plan(order, replicas=replicas, sharing=sharing, recompute=[1])
    problem = pipeline.problem(servers(3 * replicas, latency=0.1, bandwidth=10))
    bound = lower_bound(problem, plan)
    assert 0 < bound <= simulate(problem, plan).step_seconds
    assert bound >= work_bound(problem, costs_of(problem).op_seconds) > 0


def test_data_parallelism_may_beat_the_critical_path() -> None:
    problem = Problem(toy_graph([3, 3], [(0, 1)]), toy_cluster(3))
    plan = Plan(((0, 1, 2), (0, 1, 2)))
    assert lower_bound(problem) == 6
    assert lower_bound(problem, plan) == pytest.approx(2)
    assert simulate(problem, plan).step_seconds == pytest.approx(2)
    assert lower_bound(problem, Plan.of([0, 0])) == lower_bound(problem)
    assert lower_bound(problem, Plan(((0,), (0,)), schedule=Schedule(stages=(0, 1)))) == 6


def test_replicas_that_update_their_part_of_the_weights_divide_the_path() -> None:
    graph = toy_graph([0, 1], [(0, 1)], output_bytes=[0, 0])
    phase, mirror = np.array([Phase.FORWARD, Phase.UPDATE]), np.array([-1, 0])
    update = Problem(replace(graph, phase=phase, mirror=mirror, control=np.array([True])), toy_cluster(4))
    for schedule, seconds in ((Schedule(), 1.0), (Schedule(zero=1), 0.5)):
        plan = Plan(((0, 2), (0, 2)), schedule=schedule)
        assert lower_bound(update, plan) == simulate(update, plan).step_seconds == seconds


def test_the_toy_is_bounded_by_its_critical_path(four_ops_two_devices: Toy) -> None:
    assert lower_bound(four_ops_two_devices.problem) == 5
