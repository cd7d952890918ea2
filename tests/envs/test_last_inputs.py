"""What ops and transfers wait for, and the critical path, worked out by hand; and what holds of every step."""

import numpy as np
from hypothesis import HealthCheck, given, settings

from envs.simulation.simulator import Simulator, simulate
from envs.timelines.last_inputs import LOCAL, NONE, Waits
from graphs.problem import Problem
from tests.drawn import examples
from tests.envs.drawings import drawn_diamond
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.oracle.strategies import Case, cases
from tests.oracle.toys import toy_cluster, toy_graph


def test_the_last_input_is_the_one_that_comes_last_however_it_comes() -> None:
    inputs = Waits.of(drawn_diamond()).inputs
    assert inputs.producer.tolist() == [NONE, 0, 0, 1]
    assert inputs.transfer.tolist() == [LOCAL, LOCAL, 0, 1]
    assert inputs.arrival.tolist() == [0, 1, 2, 6]


def test_the_critical_path_goes_through_what_came_last() -> None:
    timeline = drawn_diamond()
    waits = Waits.of(timeline)
    ops, transfers = waits.critical_path()
    assert ops == [0, 1, 3]
    assert timeline.transfers.producer[transfers].tolist() == [1]
    assert waits.before.tolist() == [NONE, 0, NONE, 2]


def test_it_goes_through_a_busy_device_and_a_busy_link() -> None:
    star = toy_graph([1, 1, 1, 6], [(0, 1), (0, 2)], output_bytes=[2, 0, 0, 0])
    timeline = Simulator(Problem(star, toy_cluster(3, shared_out=True)), order="fifo").timeline([0, 1, 2, 0])
    ops, transfers = Waits.of(timeline).critical_path()
    assert ops == [0, 3]
    assert transfers == []
    short = toy_graph([1, 1, 1, 1], [(0, 1), (0, 2), (0, 3)], output_bytes=[2, 0, 0, 0])
    timeline = Simulator(Problem(short, toy_cluster(4, shared_out=True))).timeline([0, 1, 2, 3])
    waits = Waits.of(timeline)
    ops, transfers = waits.critical_path()
    assert len(ops) == 2
    assert len(transfers) == 3, "each transfer waited for the one before"
    assert waits.sent_before[transfers].tolist() == [NONE, *transfers[:-1]]


def test_of_a_pipeline_it_lasts_as_long_as_the_step() -> None:
    chain = Pipeline(3, 4, forward=[1, 2, 1], backward=[2, 4, 2], activation=2, update=1)
    timeline = simulate(chain.problem(servers(3, bandwidth=4)), chain.plan("early_backward_a"))
    ops, transfers = Waits.of(timeline).critical_path()
    moved = timeline.transfers
    length = (timeline.finish - timeline.start)[ops].sum() + (moved.finish - moved.start)[transfers].sum()
    assert length == timeline.step_seconds


@settings(max_examples=examples(60, 9), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_a_critical_path_goes_forward_in_time_and_ends_with_the_step(case: Case) -> None:
    timeline = Simulator(case.problem, order=case.order).timeline(case.placements[0])
    waits = Waits.of(timeline)
    ops, transfers = waits.critical_path()
    assert timeline.finish[ops[-1]] == timeline.finish.max()
    assert (np.diff(timeline.finish[ops]) >= 0).all()
    assert len(set(ops)) == len(ops)
    assert (np.diff(timeline.transfers.finish[transfers]) >= 0).all()
    assert (waits.inputs.arrival <= timeline.start + 1e-9).all()
    assert (waits.free <= timeline.start + 1e-9).all()
