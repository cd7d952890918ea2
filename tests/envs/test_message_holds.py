"""Messages hold the devices that send and receive them; steps drawn by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from envs.simulation.simulator import Simulator, simulate
from envs.simulation.step_shares import StepShares, message_holds
from envs.timelines.timeline import Timeline
from graphs.cluster import Cluster
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from tests.envs.drawings import drawn_rows
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.oracle.strategies import Case, cases
from tests.oracle.toys import toy_cluster, toy_graph

ORDERS = ("fifo", "longest_path")


def holding(cluster: Cluster, message: float = 1.0, per_byte: float = 0.0, runner: float = 0.0) -> Cluster:
    """The cluster, where messages hold devices, and what runs a plan."""
    devices = (
        replace(device, runner_seconds=runner, message_seconds=message, message_seconds_per_byte=per_byte)
        for device in cluster.devices
    )
    return replace(cluster, devices=tuple(devices))


def step(graph: OpGraph, cluster: Cluster, placement: list[int], order: str = "fifo") -> Timeline:
    return Simulator(Problem(graph, cluster), order=order).timeline(placement)


@pytest.mark.parametrize("order", ORDERS)
def test_a_message_holds_its_sender_from_the_end_of_the_op_and_an_idle_receiver_from_its_arrival(order: str) -> None:
    """A message of 2 bytes holds a device for 1 + 2 / 2 = 2 s; it is on its way while it holds its sender."""
    graph = toy_graph([1, 2, 1], [(0, 1)], output_bytes=[2, 0, 0])
    timeline = step(graph, holding(toy_cluster(2), 1.0, 0.5), [0, 1, 0], order)
    assert drawn_rows(timeline) == [
        "gpu:0       |a..c...|",
        "gpu:1       |.....bb|",
        "gpu:0>gpu:1 |.aa....|",
    ]


@pytest.mark.parametrize("order", ORDERS)
def test_what_arrives_while_an_op_runs_holds_the_device_after_it_and_before_any_other(order: str) -> None:
    """a's output arrives at 2, while b runs until 4; until 6 it is taken in, then c runs, and d that reads it."""
    graph = toy_graph([1, 4, 1, 1], [(0, 3), (2, 3)], output_bytes=[1, 0, 1, 0])
    timeline = step(graph, holding(toy_cluster(2), 2.0), [0, 1, 1, 1], order)
    assert drawn_rows(timeline) == [
        "gpu:0       |a.......|",
        "gpu:1       |bbbb..cd|",
        "gpu:0>gpu:1 |.a......|",
    ]


def test_what_arrives_in_a_hold_makes_it_longer() -> None:
    """b ends at 1, and its launch holds its device until 3: a's output arrives at 2, so that c starts at 4."""
    graph = toy_graph([1, 1, 1], [(0, 2)], output_bytes=[1, 0, 0])
    timeline = step(graph, holding(toy_cluster(2, launch=2.0)), [0, 1, 1])
    assert timeline.start.tolist() == [0, 0, 4]
    none_ready = toy_graph([1, 1, 1, 1], [(0, 2), (2, 3)], output_bytes=[1, 0, 1, 0])
    timeline = step(none_ready, holding(toy_cluster(2)), [0, 1, 1, 0])  # back on the first, after two more messages
    assert drawn_rows(timeline) == [
        "gpu:0       |a.....d|",
        "gpu:1       |b..c...|",
        "gpu:0>gpu:1 |.a.....|",
        "gpu:1>gpu:0 |....c..|",
    ]


def test_all_messages_of_an_op_hold_its_device_and_their_transfers_start_at_once() -> None:
    star = toy_graph([1, 1, 1, 1], [(0, 1), (0, 2), (0, 1)], output_bytes=[1, 0, 0, 0])
    timeline = step(star, holding(toy_cluster(3)), [0, 1, 2, 0])
    assert timeline.start.tolist() == [0, 3, 3, 3]
    assert timeline.transfers.start.tolist() == [1, 1]


def test_a_multicast_transfer_is_one_message_for_its_sender() -> None:
    star = toy_graph([1, 1, 1, 1], [(0, 1), (0, 2)], output_bytes=[1, 0, 0, 0])
    timeline = step(star, holding(toy_cluster(3, shared_out=True, multicast=True)), [0, 1, 2, 0])
    assert timeline.start.tolist() == [0, 3, 3, 2]
    assert [(at.tolist(), held.tolist()) for at, held in message_holds(timeline)] == [
        ([1], [1]),
        ([2], [1]),
        ([2], [1]),
    ]


def test_ops_without_time_wait_for_no_message_and_theirs_hold_a_device_that_computes_after_its_op() -> None:
    """b reads a's output at 2, and sends its own at once, next to d, which runs until 5; c and e wait for holds."""
    graph = toy_graph([1, 0, 1, 5, 1], [(0, 1), (1, 2)], output_bytes=[1, 1, 0, 0, 0])
    timeline = step(graph, holding(toy_cluster(3)), [0, 1, 2, 1, 1])
    assert timeline.transfers.start.tolist() == [1, 2]
    assert timeline.start.tolist() == [0, 2, 4, 0, 7]


def test_what_stays_on_its_device_is_no_message_and_neither_is_a_control_edge() -> None:
    graph = toy_graph([1, 1, 1], [(0, 1), (1, 2)], control=[False, True])
    assert step(graph, holding(toy_cluster(2)), [0, 0, 1]).start.tolist() == [0, 1, 2]


def test_what_runs_a_plan_holds_a_device_as_a_launch_does() -> None:
    graph = toy_graph([1, 1, 0, 1], [(0, 1), (1, 2), (2, 3)])
    timeline = step(graph, holding(toy_cluster(1, launch=0.5), 0.0, 0.0, 0.25), [0] * 4)
    assert timeline.start.tolist() == [0, 1.75, 2.75, 3.5]
    assert StepShares.of(timeline)["launch"].tolist() == [1.5]


def test_the_messages_of_a_pipeline_hold_its_devices() -> None:
    """Two stages, two micro-batches: each of four messages holds both devices for a second."""
    chain = Pipeline(2, forward=[2, 2], backward=[2, 2], activation=2, gradient=2)
    problem, plan = chain.problem(servers(2, bandwidth=1)), chain.plan("gpipe")
    free, held = (simulate(each, plan) for each in (problem, replace(problem, cluster=holding(problem.cluster))))
    assert len(held.transfers) == len(free.transfers)
    assert [float(seconds.sum()) for _, seconds in message_holds(held)] == [len(held.transfers)] * 2
    assert held.step_seconds > free.step_seconds


def test_the_seconds_that_messages_take_count_as_transfers() -> None:
    graph = toy_graph([1, 4, 1, 1], [(0, 3), (2, 3)], output_bytes=[1, 0, 1, 0])
    shares = StepShares.of(step(graph, holding(toy_cluster(2), 2.0), [0, 1, 1, 1]))
    assert shares["transfers"].tolist() == [2, 2]
    assert shares["bubble"].tolist() == [5, 0]


@settings(deadline=None)
@given(cases(messages=True))
def test_shares_add_up_and_no_op_starts_while_messages_hold_its_device(case: Case) -> None:
    timeline = Simulator(case.problem, order=case.order).timeline(case.placements[0])
    assert np.allclose(StepShares.of(timeline).seconds.sum(axis=1), timeline.step_seconds)
    for device, (at, held) in enumerate(message_holds(timeline)):
        ops = np.flatnonzero((timeline.placement == device) & (timeline.finish > timeline.start))
        for op in ops:
            sooner = ops[timeline.start[ops] < timeline.start[op]]
            holds = case.problem.cluster.hold_seconds[device] * len(sooner) + held[at < timeline.start[op]].sum()
            assert timeline.start[op] >= (timeline.finish - timeline.start)[sooner].sum() + holds
