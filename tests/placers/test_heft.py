"""HEFT against the example of its paper, and against schedules made by hand."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from envs.simulation.held_memory import HeldMemory, Room
from envs.simulation.simulator import simulate
from graphs.cluster import Cluster
from graphs.files.load import load_cluster
from graphs.op_graph import Floats
from graphs.problem import Problem
from placers.heft import Heft, IdleTime
from placers.solvers.list_scheduling import ListSchedule, SchedulingTasks
from tests.oracle.toys import random_graph, toy_cluster, toy_graph

# Topcuoglu, Hariri and Wu 2002, figure 2: ten tasks, three processors.
SECONDS = np.array([
    [14, 16, 9], [13, 19, 18], [11, 13, 19], [13, 8, 17], [12, 13, 10],
    [13, 16, 9], [7, 15, 11], [5, 11, 14], [18, 12, 20], [21, 7, 16],
], np.float64)  # fmt: skip
EDGES = {
    (0, 1): 18, (0, 2): 12, (0, 3): 9, (0, 4): 11, (0, 5): 14, (1, 7): 19, (1, 8): 16, (2, 6): 23, (3, 7): 27,
    (3, 8): 23, (4, 8): 13, (5, 7): 15, (6, 9): 17, (7, 9): 11, (8, 9): 13,
}  # fmt: skip
GRAPH = toy_graph([1] * 10, list(EDGES))
PAYLOAD = np.array(list(EDGES.values()), np.float64)


def scheduled(
    seconds: Sequence[Sequence[float]] | Floats, edges: Sequence[tuple[int, int]], cluster: Cluster, payload: float
) -> ListSchedule:
    """What HEFT plans for ops of the given seconds on each device."""
    problem = Problem(toy_graph([1] * len(seconds), edges), cluster)
    tasks = SchedulingTasks(problem.graph, cluster, np.array(seconds, np.float64), np.full(len(edges), payload))
    return Heft().schedule(tasks, Room(HeldMemory.of(problem)))


def test_the_upward_ranks_are_those_of_the_paper() -> None:
    ranks = SchedulingTasks(GRAPH, toy_cluster(3), SECONDS, PAYLOAD).upward_ranks()
    expected = [108.000, 77.000, 80.000, 80.000, 69.000, 63.333, 42.667, 35.667, 44.333, 14.667]
    np.testing.assert_allclose(ranks, expected, atol=5e-4)


def test_the_schedule_is_that_of_the_paper() -> None:
    problem = Problem(GRAPH, toy_cluster(3))
    planned = Heft().schedule(SchedulingTasks(GRAPH, problem.cluster, SECONDS, PAYLOAD), Room(HeldMemory.of(problem)))
    assert planned.finish.max() == 80
    assert planned.placement.tolist() == [2, 0, 2, 1, 2, 1, 2, 0, 1, 1]
    assert planned.start.tolist() == [0, 27, 9, 18, 28, 26, 38, 57, 56, 73]


def test_under_its_own_order_a_step_takes_as_long_as_in_the_paper() -> None:
    problem = Problem(replace(GRAPH, edge_bytes=PAYLOAD), toy_cluster(3).with_free_links(), op_seconds=SECONDS)
    result = Heft().place(problem)
    assert result.plan.order == (0, 27, 9, 18, 28, 26, 38, 57, 56, 73)
    assert simulate(problem, result.plan).step_seconds == 80
    assert result.simulations == 0


def test_an_op_is_inserted_into_an_earlier_gap() -> None:
    # Device 0 runs a, waits 4 s for what device 1 made of it, and runs c; d, of lower rank, fits into the wait.
    planned = scheduled([[1, 9], [9, 2], [5, 50], [3, 30]], [(0, 1), (1, 2)], toy_cluster(2), 1.0)
    assert planned.placement.tolist() == [0, 1, 0, 0]
    assert planned.start.tolist() == [0, 2, 5, 1]


def test_a_gap_that_is_too_short_is_passed_over() -> None:
    planned = scheduled([[1, 9], [9, 2], [5, 50], [4.5, 30]], [(0, 1), (1, 2)], toy_cluster(2), 1.0)
    assert planned.start.tolist() == [0, 2, 5, 10]


def test_idle_time_splits_and_fills_up() -> None:
    idle = IdleTime()
    idle.take(2, 3)
    idle.take(7, 1)
    assert idle.earliest(0, 2) == 0
    assert idle.earliest(0, 2.5) == 8
    assert idle.earliest(1, 1.5) == 5
    assert idle.earliest(3, 0) == 3  # what takes no time needs no device
    idle.take(0, 2)
    idle.take(5, 2)
    assert idle.earliest(0, 0.1) == 8


def test_work_is_planned_once_at_a_time_and_after_its_inputs() -> None:
    graph, cluster = random_graph(200, seed=0), toy_cluster(3)
    seconds = np.random.default_rng(0).uniform(0.5, 2, (200, 3))
    payload = graph.output_bytes[graph.edges[:, 0]]
    room = Room(HeldMemory.of(Problem(graph, toy_cluster(3, memory=1e9))))
    planned = Heft().schedule(SchedulingTasks(graph, cluster, seconds, payload), room)
    device = planned.placement[graph.units]
    np.testing.assert_allclose(planned.finish - planned.start, seconds[np.arange(200), device])
    producer, consumer = graph.edges.T
    sent = np.where(device[producer] == device[consumer], 0.0, payload)
    assert (planned.finish[producer] + sent <= planned.start[consumer] + 1e-9).all()
    for index in range(3):
        mine = np.flatnonzero(device == index)
        mine = mine[np.argsort(planned.start[mine])]
        assert (planned.finish[mine[:-1]] <= planned.start[mine[1:]] + 1e-9).all()


def test_ops_of_equal_rank_stay_in_topological_order(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[list[int]] = []
    monkeypatch.setattr("placers.heft.earliest_finish", lambda *given: orders.append(given[2].tolist()))
    problem = Problem(toy_graph([0, 0, 0], [(2, 1), (1, 0)], output_bytes=[0, 0, 0]), toy_cluster(2))
    Heft().schedule(SchedulingTasks.of(problem), Room(HeldMemory.of(problem)))
    assert orders == [[2, 1, 0]]


def test_tied_ops_follow_the_first() -> None:
    planned_alone = scheduled([[1, 2], [1, 2]], [], toy_cluster(2), 0.0)
    assert planned_alone.placement.tolist() == [0, 0]
    graph, cluster = toy_graph([1, 9, 1], [(0, 1)], group=[0, -1, 0]), toy_cluster(2)
    placement = Heft().place(Problem(graph, cluster)).plan.placement
    assert placement[0] == placement[2]


def test_memory_spreads_what_one_device_cannot_hold() -> None:
    graph = toy_graph([1, 1, 1], [(0, 1), (1, 2)], weights=[60, 60, 30], weight_uses=[(0, 0), (1, 1), (2, 2)])
    problem = Problem(graph, toy_cluster(2))
    plan = Heft().place(problem).plan
    assert simulate(problem, plan).fits
    assert plan.placement.tolist() == [0, 1, 1]


def test_a_budget_repairs_what_the_estimate_got_wrong() -> None:
    # Weights fill a device; the outputs of an inference are not in the estimate, and make it overflow.
    graph = toy_graph(
        [1, 1, 1, 1], [(0, 1), (2, 3)], output_bytes=[10] * 4, weights=[25] * 4, weight_uses=[(i, i) for i in range(4)]
    )
    problem = Problem(graph, toy_cluster(2, memory=75))
    result = Heft().place(problem, budget=6)
    assert simulate(problem, result.plan).fits
    assert result.simulations <= 6


def test_an_op_that_takes_no_time_waits_for_no_device() -> None:
    """c, which is free, follows a at 1 although b, the more urgent one, keeps the only device until 6; then comes d."""
    planned = scheduled([[1], [5], [0], [2]], [(0, 1), (0, 2), (2, 3)], toy_cluster(1), 0.0)
    assert planned.start.tolist() == [0, 1, 1, 6]


def test_launches_count() -> None:
    # Device 0 is as fast as device 1 but slower to launch: it gets fewer of the short ops.
    first, second = toy_cluster(2).devices
    devices = (replace(first, launch_seconds=3.0), second)
    cluster = replace(toy_cluster(2), devices=devices)
    problem = Problem(toy_graph([1] * 5, []), cluster)
    assert np.bincount(Heft().place(problem).plan.placement).tolist() == [1, 4]


def test_what_a_cluster_says_of_a_device_and_itself_does_not_matter() -> None:
    graph, cluster = random_graph(8, seed=1), load_cluster("v100:devices=4")
    links = cluster.bandwidth.copy()
    np.fill_diagonal(links, 0.0)
    unlinked = replace(cluster, bandwidth=links)
    assert Heft().place(Problem(graph, unlinked)).plan == Heft().place(Problem(graph, cluster)).plan


def test_what_may_not_run_somewhere_is_planned_where_it_may_and_what_reads_it_goes_there() -> None:
    graph = toy_graph([1, 1, 1], [(0, 1), (1, 2)], output_bytes=[0, 9, 0])
    problem = Problem(replace(graph, devices=((), ("gpu:1",), ())), toy_cluster(2))
    result = Heft().place(problem, budget=0)
    assert result.plan.devices[1:] == ((1,), (1,))
    assert simulate(problem, result.plan).step_seconds == pytest.approx(3.0)
