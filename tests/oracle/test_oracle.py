"""The engine does what the plain-Python oracle does, exactly; and what any simulator must."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from envs.simulation.bounds import lower_bound
from envs.simulation.simulator import Simulator
from graphs.problem import Problem
from tests.drawn import examples
from tests.oracle.oracle import simulate
from tests.oracle.strategies import Case, cases, check_times
from tests.oracle.toys import Toy, random_graph, toy_cluster

thorough = settings(max_examples=examples(2000, 30), deadline=None, suppress_health_check=list(HealthCheck))
brief = settings(max_examples=examples(300, 15), deadline=None, suppress_health_check=list(HealthCheck))


def simulator_of(case: Case) -> Simulator:
    return Simulator(case.problem, order=case.order)


@thorough
@given(cases() | cases(paced=True))
def test_the_engine_equals_the_oracle(case: Case) -> None:
    simulator = simulator_of(case)
    outcomes = simulator.run_batch(case.placements)
    for plan in range(len(case.placements)):
        expected = simulate(case.problem, case.op_seconds.tolist(), case.per_op(plan), case.order)
        timeline = simulator.timeline(case.placements[plan])
        check_times(timeline, expected)
        assert timeline.step_seconds == outcomes.step_seconds[plan]
        assert timeline.peak_bytes.tolist() == outcomes.peak_bytes[plan].tolist() == expected.peak_bytes
        memory = case.problem.cluster.memory_bytes
        assert timeline.fits == outcomes.fits[plan] == (np.array(expected.peak_bytes) <= memory).all()


@thorough
@given(cases(streams=True))
def test_the_engine_equals_the_oracle_where_devices_are_streams(case: Case) -> None:
    simulator = simulator_of(case)
    outcomes = simulator.run_batch(case.placements)
    for plan in range(len(case.placements)):
        expected = simulate(case.problem, case.op_seconds.tolist(), case.per_op(plan), case.problem.runtime.order)
        check_times(simulator.timeline(case.placements[plan]), expected)
        assert outcomes.peak_bytes[plan].tolist() == expected.peak_bytes
        assert simulator.seconds(case.placements)[plan] == expected.step_seconds


@thorough
@given(cases(host=True))
def test_the_engine_equals_the_oracle_where_a_host_issues_ops(case: Case) -> None:
    simulator = simulator_of(case)
    outcomes = simulator.run_batch(case.placements)
    for plan in range(len(case.placements)):
        expected = simulate(case.problem, case.op_seconds.tolist(), case.per_op(plan), case.order)
        check_times(simulator.timeline(case.placements[plan]), expected)
        assert outcomes.peak_bytes[plan].tolist() == expected.peak_bytes


@pytest.mark.parametrize("priority", ["fifo", "longest_path"])
@pytest.mark.parametrize(("shared_out", "multicast"), [(False, False), (True, False), (True, True)])
def test_the_engine_equals_the_oracle_on_larger_graphs(priority: str, shared_out: bool, multicast: bool) -> None:
    cluster = toy_cluster(4, launch=0.5, gap=0.25, shared_out=shared_out, multicast=multicast)
    for seed in range(8):
        problem = Problem(random_graph(50, seed), cluster)
        placement = np.random.default_rng(seed).integers(0, 4, 50)
        simulator = Simulator(problem, order=priority)
        timeline = simulator.timeline(placement)
        expected = simulate(problem, simulator.costs.op_seconds.tolist(), placement.tolist(), priority)
        assert timeline.start.tolist() == expected.start
        assert timeline.peak_bytes.tolist() == expected.peak_bytes


@brief
@given(cases())
def test_a_device_runs_one_op_at_a_time_and_rests_after_it(case: Case) -> None:
    for placement in case.placements:
        timeline = simulator_of(case).timeline(placement)
        for index, device in enumerate(case.problem.cluster.devices):
            ops = np.flatnonzero((timeline.placement == index) & (timeline.finish > timeline.start))
            ops = ops[np.argsort(timeline.start[ops])]
            assert (timeline.start[ops[1:]] >= timeline.finish[ops[:-1]] + device.launch_seconds).all()


@brief
@given(cases())
def test_no_op_starts_before_its_inputs_are_there(case: Case) -> None:
    timeline = simulator_of(case).timeline(case.placements[0])
    graph, moved = case.problem.graph, timeline.transfers
    arrival = dict(zip(zip(moved.output, moved.destination, strict=True), moved.finish, strict=True))
    for (u, v), control, output in zip(graph.edges, graph.control, graph.edge_output, strict=True):
        present = timeline.finish[u]
        if not control and timeline.placement[u] != timeline.placement[v]:
            assert arrival[output, timeline.placement[v]] >= present
            present = arrival[output, timeline.placement[v]]
        assert timeline.start[v] >= present


@brief
@given(cases())
def test_memory_is_never_negative_and_ends_with_what_stays(case: Case) -> None:
    timeline = simulator_of(case).timeline(case.placements[0])
    for device in range(len(case.problem.cluster)):
        times, held = timeline.memory_curve(device)
        assert times[0] == 0
        assert (np.diff(times) > 0).all()
        assert (held >= timeline.held_bytes[device]).all()
        assert held[-1] == timeline.held_bytes[device]
        assert held.max() == timeline.peak_bytes[device]


@brief
@given(cases(plans=6))
def test_a_batch_and_one_at_a_time_give_the_same_bits(case: Case) -> None:
    simulator = simulator_of(case)
    together, again = simulator.run_batch(case.placements), simulator.run_batch(case.placements)
    alone = [simulator_of(case).run(placement) for placement in case.placements]
    for seconds, peak in (
        (again.step_seconds, again.peak_bytes),
        ([o.step_seconds for o in alone], [o.peak_bytes for o in alone]),
    ):
        assert np.array_equal(together.step_seconds, seconds)
        assert np.array_equal(together.peak_bytes, peak)
    assert simulator.simulations == 2 * len(case.placements)


@brief
@given(cases())
def test_no_placement_is_faster_than_the_lower_bound(case: Case) -> None:
    bound = lower_bound(case.problem)
    assert bound >= 0
    assert (simulator_of(case).run_batch(case.placements).step_seconds >= bound * (1 - 1e-12)).all()


def test_the_known_optimum_is_the_best_of_all_placements(four_ops_two_devices: Toy) -> None:
    toy = four_ops_two_devices
    placements = np.array(list(itertools.product(range(2), repeat=4)))
    outcomes = Simulator(toy.problem).run_batch(placements)
    assert outcomes.step_seconds.min() == toy.best_seconds
    assert Simulator(toy.problem).run(toy.best_placement).step_seconds == toy.best_seconds
    assert outcomes.step_seconds[outcomes.best()] == toy.best_seconds
    assert lower_bound(toy.problem) <= toy.best_seconds
