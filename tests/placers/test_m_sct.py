"""m-SCT on programs with known optima and schedules made by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.simulation.held_memory import HeldMemory, Room
from envs.simulation.simulator import simulate
from graphs.cluster import Cluster, Device
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers import m_sct
from placers.m_etf import EarliestTaskFirst, WaitingDevices
from placers.m_sct import SmallCommunicationTimes, favourite_edges, relaxed_choices
from placers.solvers.list_scheduling import ListSchedule, SchedulingTasks
from tests.oracle.toys import random_graph, toy_cluster, toy_graph


def fork(*, weights: bool = False) -> OpGraph:
    """One op, then a short and a long one; a second to send an output. The short one comes first."""
    held = [(0, 0), (2, 1)] if weights else []
    return toy_graph([1, 2, 5], [(0, 1), (0, 2)], weights=[60] * len(held), weight_uses=held)


def planned(problem: Problem) -> ListSchedule:
    graph, devices = problem.graph, len(problem.cluster)
    seconds = np.repeat(graph.flops[:, None], devices, axis=1)
    payload = graph.output_bytes[graph.edges[:, 0]]
    tasks = SchedulingTasks(graph, problem.cluster, seconds, payload)
    return SmallCommunicationTimes().schedule(tasks, Room(HeldMemory.of(problem)))


def test_the_favourite_child_stays_where_its_input_is() -> None:
    """The short one starts a second later, on the other device."""
    problem = Problem(fork(), toy_cluster(2))
    schedule = planned(problem)
    assert schedule.placement.tolist() == [0, 1, 0]
    assert schedule.start.tolist() == [0, 2, 1]
    assert simulate(problem, SmallCommunicationTimes().place(problem).plan).step_seconds == 6


def test_the_favourite_child_is_the_one_that_is_far_from_the_other_device() -> None:
    """m-ETF runs the longer child first, and then the one whose input takes long to send, from 6 to 10."""
    graph = replace(toy_graph([1, 5, 4], [(0, 1), (0, 2)]), edge_bytes=np.array([1.0, 100.0]))
    problem = Problem(graph, toy_cluster(2))
    assert SmallCommunicationTimes().place(problem).plan.placement.tolist() == [0, 1, 0]
    assert simulate(problem, SmallCommunicationTimes().place(problem).plan).step_seconds == 7
    assert simulate(problem, EarliestTaskFirst().place(problem).plan).step_seconds == 10


def test_no_device_waits_for_a_child_that_it_has_no_room_for() -> None:
    schedule = planned(Problem(fork(weights=True), toy_cluster(2)))
    assert schedule.placement.tolist() == [0, 0, 1]
    assert schedule.start.tolist() == [0, 1, 2]


def test_a_device_waits_no_longer_when_the_child_is_elsewhere() -> None:
    graph = fork()
    room = Room(HeldMemory.of(Problem(graph, toy_cluster(2))))
    waiting = WaitingDevices(graph, np.array([1]), np.array([10.0, 10.0]), devices=2)

    def planned_until(op: int, finish: float, placement: list[int]) -> tuple[ListSchedule, int]:
        schedule = ListSchedule(SchedulingTasks.of(Problem(graph, toy_cluster(2))))
        schedule.finish[op], schedule.placement[:] = finish, placement
        return schedule, op

    def waits() -> list[tuple[int, float]]:
        awaited, until = waiting.awaited.tolist(), waiting.until.tolist()
        return [(op, seconds) for op, seconds in zip(awaited, until, strict=True) if op >= 0]

    assert waits() == []
    assert not waiting.renew(*planned_until(0, 1.0, [0, -1, -1]), 0, room).any()
    assert waits() == [(2, 11.0)]
    assert waiting.renew(*planned_until(2, 6.0, [0, -1, 1]), 1, room).tolist() == [True, False]
    assert waits() == []


@given(
    st.integers(1, 6), st.floats(0.1, 5, allow_subnormal=False), st.floats(0.1, 5, allow_subnormal=False),
    st.floats(1e-6, 1e6),
)  # fmt: skip
def test_equal_children_share_the_favour_of_their_parent(
    children: int, parent: float, child: float, unit: float
) -> None:
    """k children that take q after a parent that takes p, with transfers of c: the end is p + q + c (k - 1) / k."""
    edges = np.array([(0, i) for i in range(1, children + 1)])
    seconds = unit * np.array([parent] + [child] * children)
    choices = relaxed_choices(seconds, edges, np.full(children, 2 * unit))
    end = unit * (parent + 2 * choices.max() + child)
    assert end == pytest.approx(unit * (parent + child + 2 * (children - 1) / children), rel=1e-6)
    assert choices.sum() >= children - 1 - 1e-6


def test_the_choice_between_unequal_children_evens_out_their_ends() -> None:
    """Ends 1 + c x + q for q of 2 and 2.5 and c of 1 are equal where the longer one has x = 1/4: after 3.75."""
    choices = relaxed_choices(np.array([1, 2, 2.5]), np.array([(0, 1), (0, 2)]), np.ones(2))
    assert choices == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("largest", [0, 10_000])
@pytest.mark.parametrize("seed", range(4))
def test_a_unit_favours_one_child_and_is_favoured_once(
    seed: int, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(m_sct, "LARGEST_PROGRAM", largest)
    graph = random_graph(60, seed)
    transfer = graph.output_bytes[graph.edges[:, 0]]
    chosen = favourite_edges(graph, graph.flops, transfer)
    assert len(chosen) > 0
    assert (transfer[chosen] > 0).all()
    for side in (0, 1):
        assert np.bincount(graph.edges[chosen, side]).max() == 1


def test_tied_ops_are_no_favourites_of_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = toy_graph([1, 1, 1, 1], [(0, 1), (1, 2), (2, 3)], group=[0, 0, 1, 1])
    for largest in (0, 10_000):
        monkeypatch.setattr(m_sct, "LARGEST_PROGRAM", largest)
        assert favourite_edges(graph, graph.flops, np.ones(3)).tolist() == [1]


@pytest.mark.parametrize("seed", range(5))
def test_it_plans_no_op_before_its_inputs_and_one_at_a_time(seed: int) -> None:
    problem = Problem(random_graph(40, seed), toy_cluster(3))
    graph, schedule = problem.graph, planned(problem)
    apart = schedule.placement[graph.edges[:, 0]] != schedule.placement[graph.edges[:, 1]]
    sent = apart * graph.output_bytes[graph.edges[:, 0]]
    assert (schedule.start[graph.edges[:, 1]] >= schedule.finish[graph.edges[:, 0]] + sent).all()
    for device in range(3):
        mine = np.flatnonzero((schedule.placement == device) & (graph.flops > 0))
        mine = mine[np.argsort(schedule.start[mine])]
        assert (schedule.start[mine[1:]] >= schedule.finish[mine[:-1]]).all()


def test_memory_is_kept_to() -> None:
    graph = toy_graph([1] * 6, [(i, i + 1) for i in range(5)], weights=[40] * 6, weight_uses=[(i, i) for i in range(6)])
    assert set(SmallCommunicationTimes().place(Problem(graph, toy_cluster(3, memory=1e6))).plan.placement) == {0}
    tight = Problem(graph, toy_cluster(3))
    plan = SmallCommunicationTimes().place(tight).plan
    assert np.bincount(plan.placement).tolist() == [2, 2, 2]
    assert simulate(tight, plan).fits


def test_devices_may_differ_in_speed() -> None:
    devices = tuple(Device(f"gpu:{i}", "gpu", speed, 1.0, 1e9) for i, speed in enumerate((1.0, 4.0)))
    cluster = Cluster("unequal", devices, np.zeros((2, 2)), np.ones((2, 2)), np.zeros((2, 2), np.int64))
    problem = Problem(random_graph(50, seed=1), cluster)
    result = SmallCommunicationTimes().place(problem)
    assert result.simulations == 0
    assert result.plan.placement.tolist() == SmallCommunicationTimes().place(problem).plan.placement.tolist()
    assert set(result.plan.placement) == {0, 1}
