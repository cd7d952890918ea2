"""Transfers that move other bytes than an output occupies, and messages of their own, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from envs.files.trace import trace_events
from envs.prepared_problem import PreparedProblem
from envs.simulation.bounds import lower_bound, path_bound
from envs.simulation.simulator import Simulator
from envs.timelines.timeline import Timeline
from graphs.cluster import Cluster
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.learned.features import observe
from placers.learned.sequential.layout import RolloutLayout
from tests.oracle.toys import device_loads, toy_cluster, toy_graph

NO = float("nan")


def star(messages: Sequence[float]) -> OpGraph:
    """Op a, read by b, c and d, with an output of 10 bytes that takes 2 s to send."""
    graph = toy_graph([1, 1, 1, 1], [(0, 1), (0, 2), (0, 3)], output_bytes=[10, 0, 0, 0])
    return replace(graph, transfer_bytes=np.array([2.0, 0, 0, 0]), edge_bytes=np.array(messages))


def step(graph: OpGraph, cluster: Cluster, placement: Sequence[int]) -> Timeline:
    return Simulator(Problem(graph, cluster)).timeline(placement)


def test_a_transfer_takes_what_it_moves_and_its_copy_takes_what_the_output_occupies() -> None:
    timeline = step(star([NO, NO, NO]), toy_cluster(2), [0, 1, 1, 0])
    assert timeline.start.tolist() == [0, 3, 4, 1]  # sent from 1 to 3, once for both
    assert timeline.peak_bytes.tolist() == [10, 10]


def test_each_message_is_a_transfer_of_its_own_even_to_one_device() -> None:
    timeline = step(star([3, 4, NO]), toy_cluster(2), [0, 1, 1, 1])
    # queued at 1: the output for d, then the messages for b and c
    assert timeline.start.tolist() == [0, 6, 10, 3]
    assert timeline.transfers.output.tolist() == [0, 4, 5]
    assert timeline.transfers.producer.tolist() == [0, 0, 0]
    assert timeline.transfers.finish.tolist() == [3, 6, 10]
    # the output's copy of 10 bytes from 1 to 4; the messages' copies of 3 from 3 to 7 and of 4 from 6 to 11
    assert timeline.peak_bytes.tolist() == [10, 13]
    times, held = timeline.memory_curve(0)
    assert held[times >= 10].tolist() == [0]  # held until the last message has arrived
    assert held[times < 10].tolist() == [10]


def test_a_consumer_on_the_same_device_needs_no_message() -> None:
    timeline = step(star([3, 4, 5]), toy_cluster(2), [0, 0, 0, 0])
    assert timeline.step_seconds == 4
    assert len(timeline.transfers) == 0
    assert timeline.peak_bytes.tolist() == [10, 0]


def test_a_multicast_channel_carries_each_message_alone() -> None:
    cluster = toy_cluster(3, shared_out=True, multicast=True)
    timeline = step(star([NO, 3, NO]), cluster, [0, 1, 2, 2])
    assert timeline.start.tolist() == [0, 3, 6, 3]  # the output to both until 3, then the message until 6
    slices = [event for event in trace_events(timeline) if event.get("cat") == "transfer"]
    assert [event["args"] for event in slices] == [
        {"from": "gpu:0", "to": ["gpu:1", "gpu:2"], "bytes": 2.0},
        {"from": "gpu:0", "to": ["gpu:2"], "bytes": 3.0},
    ]


def test_the_bounds_count_a_message_by_its_own_bytes() -> None:
    graph = toy_graph([1, 1], [(0, 1)], output_bytes=[100, 0])
    problem = Problem(replace(graph, edge_bytes=np.array([2.0])), toy_cluster(2))
    far = np.array([[1.0, 100.0], [100.0, 1.0]])  # each op is fast on one device only
    assert path_bound(problem, far) == 4
    assert lower_bound(problem) <= Simulator(problem).seconds([[0, 1]])[0] == 4


def test_the_loads_of_a_pipeline_count_each_message_for_itself() -> None:
    problem = Problem(star([3, 4, NO]), toy_cluster(2))
    costs = Simulator(problem).costs
    assert device_loads(problem, np.array([0, 1, 1, 1]), costs).tolist() == [1 + 4.5, 3 + 4.5]  # half of 2 + 3 + 4
    assert device_loads(problem, np.array([0, 0, 1, 1]), costs).tolist() == [2 + 3, 2 + 3]  # half of 2 + 4


@pytest.mark.parametrize(("messages", "sent"), [([NO, NO, NO], [2, 2, 2]), ([3, 4, NO], [3, 4, 2])])
def test_what_placers_and_policies_see_of_traffic_is_what_crosses(messages: list[float], sent: list[float]) -> None:
    problem = Problem(star(messages), toy_cluster(2))
    costs = Simulator(problem).costs
    assert problem.units.link_bytes.tolist() == sent
    assert RolloutLayout.of(problem, costs).input_bytes.tolist() == sent
    assert (PreparedProblem(problem).edge_bytes * max(sent)).tolist() == sent
    other = replace(problem, graph=replace(problem.graph, output_bytes=np.array([1e9, 0, 0, 0])))
    before, after = observe(problem, costs), observe(other, costs)
    assert np.array_equal(before.units[:, 2], after.units[:, 2])  # communication
    assert not np.array_equal(before.units[:, 4], after.units[:, 4])  # memory of the activations
