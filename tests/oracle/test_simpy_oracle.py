"""The engine agrees with a second oracle, on SimPy, that shares no code with the first."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from envs.simulation.simulator import Simulator
from graphs.problem import Problem
from tests.drawn import examples
from tests.oracle.simpy_oracle import simulate
from tests.oracle.strategies import Case, cases, check_times
from tests.oracle.toys import random_graph, toy_cluster


@settings(max_examples=examples(500, 30), deadline=None, suppress_health_check=list(HealthCheck))
@given(cases() | cases(paced=True))
def test_the_engine_agrees_with_simpy(case: Case) -> None:
    simulator = Simulator(case.problem, order=case.order)
    for plan in range(len(case.placements)):
        expected = simulate(case.problem, case.op_seconds.tolist(), case.per_op(plan), case.order)
        timeline = simulator.timeline(case.placements[plan])
        check_times(timeline, expected)


@pytest.mark.parametrize("priority", ["fifo", "longest_path"])
@pytest.mark.parametrize(("shared_out", "multicast"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("ops", [50, 150, 500])
def test_the_engine_agrees_with_simpy_on_larger_graphs(
    ops: int, shared_out: bool, multicast: bool, priority: str
) -> None:
    cluster = toy_cluster(4, launch=0.5, gap=0.25, shared_out=shared_out, multicast=multicast)
    for seed in range(3):
        problem = Problem(random_graph(ops, seed), cluster)
        placement = np.random.default_rng(seed).integers(0, 4, ops)
        simulator = Simulator(problem, order=priority)
        timeline = simulator.timeline(placement)
        expected = simulate(problem, simulator.costs.op_seconds.tolist(), placement.tolist(), priority)
        assert timeline.start.tolist() == expected.start
        assert timeline.finish.tolist() == expected.finish
        assert simulator.run(placement).step_seconds == expected.step_seconds
