"""Shares of steps worked out by hand, drawn; and that they add up."""

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings

from envs.expansion.expanded import Expansion, Role
from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator, simulate
from envs.simulation.step_shares import SHARES, StepShares
from envs.timelines.timeline import Timeline
from graphs.host import Host
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from graphs.runtime import IDEAL, runtime_of
from tests.drawn import examples
from tests.envs.drawings import drawn_diamond, drawn_rows
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.oracle.strategies import Case, cases
from tests.oracle.toys import toy_cluster, toy_graph


def shares(timeline: Timeline) -> list[dict[str, float]]:
    """Of each device what it spends time on."""
    seconds = StepShares.of(timeline).seconds.tolist()
    return [{name: spent for name, spent in zip(SHARES, row, strict=True) if spent} for row in seconds]


def test_waiting_for_what_is_not_yet_made_is_bubble_and_for_what_is_sent_is_not() -> None:
    assert shares(drawn_diamond()) == [{"forward": 4, "bubble": 3}, {"forward": 4, "transfers": 2, "bubble": 1}]


def test_a_transfer_that_waits_for_its_channel_is_on_its_way() -> None:
    star = toy_graph([1, 1, 1], [(0, 1), (0, 2)], output_bytes=[2, 0, 0])
    timeline = Simulator(Problem(star, toy_cluster(3, shared_out=True))).timeline([0, 1, 2])
    assert drawn_rows(timeline) == [
        "gpu:0   |a.....|",
        "gpu:1   |...b..|",
        "gpu:2   |.....c|",
        "gpu:0>* |.aaaa.|",
    ]
    assert shares(timeline)[2] == {"forward": 1, "transfers": 4, "bubble": 1}
    assert shares(timeline)[1] == {"forward": 1, "transfers": 2, "bubble": 3}  # after its last op nothing comes


def test_of_several_inputs_the_last_one_counts() -> None:
    graph = toy_graph([1, 5, 1], [(0, 2), (1, 2)], output_bytes=[2, 1, 0])
    timeline = Simulator(Problem(graph, toy_cluster(3))).timeline([0, 1, 2])
    assert drawn_rows(timeline)[2:] == [
        "gpu:2       |......c|",
        "gpu:0>gpu:2 |.aa....|",
        "gpu:1>gpu:2 |.....b.|",
    ]
    assert shares(timeline)[2] == {"forward": 1, "transfers": 1, "bubble": 5}


def test_what_ops_without_time_waited_for_counts_as_if_they_were_not_there() -> None:
    relayed = toy_graph([1, 0, 1], [(0, 1), (1, 2)], output_bytes=[2, 3, 0])
    timeline = Simulator(Problem(relayed, toy_cluster(3))).timeline([0, 1, 2])
    assert shares(timeline)[2] == {"forward": 1, "transfers": 5, "bubble": 1}
    nothing_left = Simulator(Problem(toy_graph([1, 0], [(0, 1)], output_bytes=[2, 0]), toy_cluster(2)))
    assert shares(nothing_left.timeline([0, 1]))[1] == {"transfers": 2, "bubble": 1}


def test_holds_after_launches_are_apart() -> None:
    graph = toy_graph([1, 1, 1], [(0, 2)], output_bytes=[1, 0, 0])
    timeline = Simulator(Problem(graph, toy_cluster(2, launch=0.5)), order="fifo").timeline([0, 0, 1])
    assert shares(timeline) == [
        {"forward": 2, "launch": 1},  # the second one at the end of the step, which the other device's op makes 3 s
        {"forward": 1, "transfers": 1, "bubble": 1},
    ]


def test_phases_are_apart() -> None:
    chain = Pipeline(2, forward=[1, 2], backward=[1, 3], activation=6, gradient=2, update=1)
    timeline = simulate(chain.problem(servers(2, latency=1, bandwidth=2)), chain.plan("gpipe"))
    assert drawn_rows(timeline, 2) == [
        "gpu:0       |F0......................B0U |",
        "gpu:1       |..........F0- B0--- U ......|",
        "gpu:0>gpu:1 |..========..................|",
        "gpu:1>gpu:0 |....................====....|",
    ]
    assert shares(timeline) == [
        {"forward": 1, "backward": 1, "update": 1, "transfers": 2, "bubble": 9},
        {"forward": 2, "backward": 3, "update": 1, "transfers": 4, "bubble": 4},
    ]


def all_reduce() -> Timeline:
    """Two replicas: a backward pass each, a gradient sent to the other, both summed up, an update each."""
    role = [Role.WORK, Role.WORK, Role.SEND, Role.SEND, Role.SUM, Role.SUM, Role.WORK, Role.WORK]
    seconds = [2.0, 3.0, 0, 0, 0, 0, 1, 1]
    edges = [(0, 2), (1, 3), (2, 5), (3, 4), (0, 4), (1, 5), (4, 6), (5, 7)]
    graph = replace(
        toy_graph(seconds, edges, output_bytes=[2] * 8), phase=np.array([Phase.BACKWARD] * 6 + [Phase.UPDATE] * 2)
    )
    problem, placement = Problem(graph, toy_cluster(2)), np.arange(8) % 2
    given = Problem(toy_graph([1], []), toy_cluster(2))
    unknown = np.full(8, -1)
    expansion = Expansion(
        given, Plan(((0, 1),)), problem, placement, np.zeros(8, np.int64), unknown, placement, unknown, np.array(role)
    )
    return replace(Simulator(problem).timeline(placement), expansion=expansion)


def test_updates_wait_for_sums_of_gradients() -> None:
    timeline = all_reduce()
    assert drawn_rows(timeline, 2) == [
        "gpu:0       |B-- ......U |",
        "gpu:1       |B---- ..U ..|",
        "gpu:0>gpu:1 |....++++....|",
        "gpu:1>gpu:0 |......++++..|",
    ]
    assert timeline.is_all_reduce.tolist() == [True, True]
    assert shares(timeline) == [
        {"backward": 2, "update": 1, "all_reduce": 2, "bubble": 1},  # the other replica's gradient comes later
        {"backward": 3, "update": 1, "all_reduce": 1, "bubble": 1},
    ]


def test_an_op_that_has_its_inputs_waits_for_the_host() -> None:
    """Which issues a, its copy, b and c: c waits for a until 3, for the copy, 1 s, and then for its own launch."""
    graph = toy_graph([1, 1, 1], [(0, 2)], output_bytes=[1, 0, 0])
    problem = Problem(graph, toy_cluster(2), runtime=replace(IDEAL, host=Host.uniform(2.0)))
    timeline = Simulator(problem).timeline([0, 0, 1])
    assert (timeline.start.tolist(), timeline.transfers.finish.tolist()) == ([2, 6, 8], [4])
    assert shares(timeline) == [
        {"forward": 2, "host": 5, "bubble": 2},
        {"forward": 1, "transfers": 1, "host": 4, "bubble": 3},
    ]


def test_a_stream_waits_for_copies_that_were_issued_before() -> None:
    """The last op of gpu:0 waits for the copy of the first one's output, 3 s, and so does c, which reads it."""
    graph = toy_graph([3, 5, 3, 3], [(0, 2), (1, 3)], output_bytes=[3, 0, 0, 0])
    timeline = simulate(
        Problem(graph, toy_cluster(2), runtime=runtime_of("parallelize:host=none,copies=barrier")),
        Plan.of([0, 0, 1, 0]),
    )
    assert timeline.start.tolist() == [0, 3, 11, 11]
    assert shares(timeline) == [{"forward": 11, "transfers": 3}, {"forward": 3, "transfers": 8, "bubble": 3}]


@settings(max_examples=examples(200, 20), deadline=None, suppress_health_check=list(HealthCheck))
@given(cases() | cases(host=True) | cases(streams=True))
def test_shares_add_up_to_the_step(case: Case) -> None:
    timeline = Simulator(case.problem, order=case.order).timeline(case.placements[0])
    found = StepShares.of(timeline)
    assert (found.seconds >= -1e-9).all()
    np.testing.assert_allclose(found.seconds.sum(axis=1), timeline.step_seconds, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.seconds[:, :4].sum(axis=1), timeline.busy_seconds, rtol=0, atol=1e-9)
    if not len(timeline.transfers):
        assert not found["transfers"].any()
    if case.problem.host is None:
        assert not found["host"].any()


def test_an_empty_device_only_waits() -> None:
    graph = OpGraph("one", ("a",), ("toy",), np.ones(1), np.zeros(1), np.zeros(1), np.zeros((0, 2), np.int64))
    timeline = Simulator(Problem(graph, toy_cluster(2))).timeline([0])
    assert shares(timeline) == [{"forward": 1}, {"bubble": 1}]
