"""Baechi's placers and hill climbing on schedules made by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.simulation.held_memory import HeldMemory, Room
from envs.simulation.simulator import Simulator, simulate
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.heft import Heft
from placers.hill_climbing import HillClimbing
from placers.m_etf import EarliestTaskFirst
from placers.m_sct import SmallCommunicationTimes
from placers.m_topo import MemoryTopological
from placers.peft import Peft
from placers.single_device import SingleDevice
from placers.solvers.list_scheduling import (
    MEMORY_SHARES,
    ListSchedule,
    ListScheduler,
    SchedulingTasks,
    link_costs,
)
from tests.oracle.toys import random_graph, toy_cluster, toy_graph


def test_the_earliest_task_goes_first_where_it_can_start_first() -> None:
    """b, the more urgent one, takes the first device, and a the other; c follows a there at 2, and d follows b at 3."""
    graph = toy_graph([2, 3, 1, 1], [(0, 2), (1, 3)])
    problem = Problem(graph, toy_cluster(2))
    tasks = SchedulingTasks(graph, problem.cluster, np.repeat(graph.flops[:, None], 2, axis=1), np.ones(2))
    planned = EarliestTaskFirst().schedule(tasks, Room(HeldMemory.of(problem)))
    assert planned.placement.tolist() == [1, 0, 1, 0]
    assert planned.start.tolist() == [0, 0, 2, 3]
    assert EarliestTaskFirst().place(problem).plan.placement.tolist() == [1, 0, 1, 0]


def test_of_ops_that_could_start_at_once_the_one_with_the_longest_path_behind_it_goes_first() -> None:
    """b and c are both ready when a ends at 1; d, which takes 4, follows c."""
    graph = toy_graph([1, 2, 1, 4], [(0, 1), (0, 2), (2, 3)])
    assert etf(Problem(graph, toy_cluster(1))).start.tolist() == [0, 6, 1, 2]


def test_etf_lets_an_op_that_takes_no_time_wait_for_no_device() -> None:
    """c, which is free, ends at 1 while the device runs b."""
    graph = toy_graph([1, 5, 0, 2], [(0, 1), (0, 2), (2, 3)])
    assert etf(Problem(graph, toy_cluster(1))).start.tolist() == [0, 1, 1, 6]


def etf(problem: Problem) -> ListSchedule:
    """What m-ETF plans."""
    return EarliestTaskFirst().schedule(SchedulingTasks.of(problem), Room(HeldMemory.of(problem)))


@pytest.mark.parametrize("seed", range(5))
def test_etf_plans_no_op_before_its_inputs_and_one_at_a_time(seed: int) -> None:
    problem = Problem(random_graph(40, seed), toy_cluster(3))
    graph = problem.graph
    seconds = np.repeat(graph.flops[:, None], 3, axis=1)
    payload = graph.output_bytes[graph.edges[:, 0]]
    room = Room(HeldMemory.of(problem))
    planned = EarliestTaskFirst().schedule(SchedulingTasks(graph, problem.cluster, seconds, payload), room)
    apart = planned.placement[graph.edges[:, 0]] != planned.placement[graph.edges[:, 1]]
    assert (planned.start[graph.edges[:, 1]] >= planned.finish[graph.edges[:, 0]] + apart * payload).all()
    for device in range(3):
        mine = np.flatnonzero((planned.placement == device) & (graph.flops > 0))
        mine = mine[np.argsort(planned.start[mine])]
        assert (planned.start[mine[1:]] >= planned.finish[mine[:-1]]).all()


@given(st.integers(0, 10**6), st.integers(1, 4), st.booleans())
def test_under_its_own_order_a_step_takes_what_etf_planned_where_nothing_queues_for_links(
    seed: int, devices: int, ties: bool
) -> None:
    """No device waits in m-ETF's schedule while an op is ready, so the simulator, which lets none wait, follows it.

    HEFT's and m-SCT's devices may wait for an op of theirs, so that their steps differ.
    """
    graph = random_graph(25, seed)
    if ties:
        graph = replace(graph, group=np.random.default_rng(seed).integers(-1, 6, len(graph)))
    problem = Problem(graph, toy_cluster(devices, memory=1e6, latency=0.5).with_free_links())
    planned, plan = etf(problem), EarliestTaskFirst().place(problem).plan
    assert plan.order == tuple(planned.start)
    timeline = simulate(problem, plan)
    assert timeline.start.tolist() == planned.start.tolist()
    assert timeline.step_seconds == planned.finish.max()


@pytest.mark.parametrize("placer", [Heft(), Peft(), EarliestTaskFirst(), SmallCommunicationTimes()])
def test_what_does_not_fit_is_found_under_the_order_that_is_handed_on(placer: ListScheduler) -> None:
    problem = Problem(random_graph(30, 3), toy_cluster(3, memory=45.0))
    held, fits = HeldMemory.of(problem), list[bool]()
    for share in MEMORY_SHARES:
        planned = placer.schedule(SchedulingTasks.of(problem), Room(held, share))
        fits.append(Simulator(problem, order=planned.start).run(planned.placement).fits)
    for budget in (1, 3, 6):
        result = placer.place(problem, budget=budget)
        assert result.simulations <= budget
        assert isinstance(result.plan.order, tuple)
        assert simulate(problem, result.plan).fits == any(fits[:budget])


@pytest.mark.parametrize("placer", [Heft(), Peft(), EarliestTaskFirst(), SmallCommunicationTimes()])
def test_a_schedule_is_made_again_only_where_less_memory_changes_it(placer: ListScheduler) -> None:
    """The op needs 80 bytes while it runs, which no estimate has: all shares of 60 bytes leave it where it is."""
    graph = toy_graph([1], [], weights=[10], weight_uses=[(0, 0)], output_bytes=[70])
    assert placer.place(Problem(graph, toy_cluster(2, memory=60)), budget=6).simulations == 1


@pytest.mark.parametrize("placer", [Heft(), Peft(), EarliestTaskFirst(), SmallCommunicationTimes()])
@pytest.mark.parametrize("memory", [30.0, 45.0, 60.0])
def test_shares_of_memory_that_stayed_free_change_no_schedule(placer: ListScheduler, memory: float) -> None:
    for seed in range(5):
        problem = Problem(random_graph(30, seed), toy_cluster(3, memory=memory))
        held = HeldMemory.of(problem)
        found = [placer.schedule(SchedulingTasks.of(problem), Room(held, share)) for share in MEMORY_SHARES]
        for share, before, after in zip(MEMORY_SHARES[1:], found, found[1:], strict=False):
            if (held.on_devices(before.placement) <= share * held.limits).all():
                assert np.array_equal(before.placement, after.placement)
                assert np.array_equal(before.start, after.start)


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_inputs_arrive_when_the_last_of_them_has_been_sent(seed: int, devices: int) -> None:
    problem = Problem(random_graph(12, seed), toy_cluster(devices))
    graph, generator = problem.graph, np.random.default_rng(seed)
    tasks = SchedulingTasks(graph, problem.cluster, np.ones((len(graph), devices)), generator.random(len(graph.edges)))
    planned = ListSchedule(tasks)
    planned.placement[:] = generator.integers(devices, size=graph.num_units)
    planned.finish[:] = generator.random(len(graph))
    latency, inverse_bandwidth = link_costs(problem.cluster)
    expected = np.zeros((len(graph), devices))
    for edge, (producer, consumer) in enumerate(graph.edges.tolist()):
        source = planned.placement[graph.units[producer]]
        transfer = ~graph.control[edge] * latency[source] + tasks.payload[edge] * inverse_bandwidth[source]
        expected[consumer] = np.maximum(expected[consumer], planned.finish[producer] + transfer)
    assert (np.array([planned.arrivals(op) for op in range(len(graph))]) == expected).all()


def test_memory_is_filled_evenly_in_topological_order() -> None:
    graph = toy_graph([1] * 4, [(0, 1), (1, 2), (2, 3)], weights=[10] * 4, weight_uses=[(0, 0), (1, 1), (2, 2), (3, 3)])
    # a cap of 40 / 2 + 10: three of the four on the first device
    assert MemoryTopological().place(Problem(graph, toy_cluster(2))).plan.placement.tolist() == [0, 0, 0, 1]
    small = Problem(graph, toy_cluster(2, memory=25.0))
    assert MemoryTopological().place(small).plan.placement.tolist() == [0, 0, 1, 1]


def test_hill_climbing_uses_its_budget_and_gets_better_with_it() -> None:
    problem = Problem(random_graph(60, 0), toy_cluster(3, memory=1e6))
    results = [HillClimbing().place(problem, seed=0, budget=budget) for budget in (1, 30, 600)]
    assert [result.simulations for result in results] == [1, 30, 600]
    steps = [simulate(problem, result.plan).step_seconds for result in results]
    assert steps[0] >= steps[1] > steps[2]
    with pytest.raises(InputError, match="patience is 0"):
        HillClimbing(patience=0)


def test_a_single_device_may_be_the_processor() -> None:
    problem = Problem(random_graph(10, 0), load_cluster("cpu_gpu:gpus=2"))
    placed = SingleDevice(kind="cpu").place(problem).plan
    assert set(placed.placement.tolist()) == {0}
    assert SingleDevice(kind="cpu").name == "single_device:kind=cpu"
    assert 0 not in SingleDevice(kind="gpu").place(problem).plan.placement
    with pytest.raises(InputError, match="unknown kind of device 'tpu'"):
        SingleDevice(kind="tpu").place(problem)
    assert Simulator(problem).run(placed.placement).fits
