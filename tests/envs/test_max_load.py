"""The published cost model of max-load, by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.costs.costs import Costs, costs_of
from envs.objectives import evaluator_of
from graphs.cluster import Cluster, Device
from graphs.foundation.errors import InputError
from graphs.problem import Problem, objective_of
from tests.oracle.toys import device_loads, random_graph, toy_cluster, toy_graph

# 0 -> 1, 2, 3 and 1 -> 3: op 0 is read by three ops
EDGES = [(0, 1), (0, 2), (0, 3), (1, 3)]
SECONDS = np.array([[1.0, 1.0, 10.0], [2.0, 2.0, 20.0], [3.0, 3.0, 30.0], [4.0, 4.0, 40.0]])


def problem(objective: str = "max-load") -> Problem:
    """Two accelerators, 1 byte/s to host memory, and a CPU."""
    devices = (*(Device(f"gpu:{i}", "gpu", 1.0, 1.0, 100.0) for i in range(2)), Device("cpu:0", "cpu", 1.0, 1.0, 100.0))
    bandwidth = np.array([[1.0, 0.5, 1.0], [0.5, 1.0, 1.0], [1.0, 1.0, 1.0]])
    cluster = Cluster("two and a CPU", devices, np.zeros((3, 3)), bandwidth, np.arange(9).reshape(3, 3))
    graph = toy_graph([1, 1, 1, 1], EDGES, output_bytes=[5.0, 7.0, 11.0, 13.0])
    return Problem(graph, cluster, op_seconds=SECONDS, objective=objective_of(objective))


@pytest.mark.parametrize(
    ("placement", "loads"),
    [
        ([0, 0, 0, 0], [10, 0, 0]),
        ([0, 1, 1, 1], [1 + 5, 9 + 5, 0]),  # sent once, received once, though three ops read it
        ([0, 1, 0, 1], [4 + 5, 6 + 5, 0]),
        ([0, 1, 2, 1], [1 + 5, 6 + 5, 30]),  # two devices read it: still sent once; the CPU pays nothing
        ([2, 0, 2, 1], [2 + 5 + 7, 4 + 5 + 7, 40]),  # what comes from the CPU is paid by who receives it
    ],
)
def test_loads_of_a_placement(placement: list[int], loads: list[float]) -> None:
    asked = problem()
    found = device_loads(asked, np.array(placement), Costs(SECONDS))
    assert found.tolist() == loads
    assert evaluator_of(asked).seconds([placement]).tolist() == [max(loads)]


def test_without_a_cpu_each_side_pays_half_of_the_way_between_two_accelerators() -> None:
    graph = toy_graph([1, 1], [(0, 1)], output_bytes=[6.0, 0.0])
    given = Problem(graph, toy_cluster(2), op_seconds=np.ones((2, 2)))
    between = float(given.cluster.latency[0, 1] + 6.0 / given.cluster.bandwidth[0, 1])
    assert device_loads(given, np.array([0, 1]), Costs(np.ones((2, 2)))) == pytest.approx([1 + between / 2] * 2)


def test_an_unknown_objective_is_named() -> None:
    known = "flow, latency, max-load, measured, replacement, step-time, throughput"
    with pytest.raises(InputError, match=f"unknown objective 'fun'; there are: {known}"):
        problem("fun")


def test_an_edge_with_a_message_of_its_own_is_paid_for_in_addition_to_the_output() -> None:
    graph = replace(problem().graph, edge_bytes=np.array([np.nan, np.nan, np.nan, 2.0]), transfer_bytes=np.full(4, 3.0))
    asked = replace(problem(), graph=graph)
    assert device_loads(asked, np.array([0, 0, 0, 1]), Costs(SECONDS)).tolist() == [6 + 3 + 2, 4 + 3 + 2, 0]


@settings(deadline=None)
@given(seed=st.integers(0, 10_000))
def test_loads_are_added_up_as_published(seed: int) -> None:
    graph, cluster = random_graph(20, seed), toy_cluster(3)
    asked = Problem(graph, cluster)
    costs, placement = costs_of(asked), np.random.default_rng(seed).integers(3, size=20)
    expected = np.bincount(placement, costs.op_seconds[np.arange(20), placement], minlength=3)
    moves = graph.output_bytes / cluster.bandwidth[0, 1] / 2 + cluster.latency[0, 1] / 2
    away = {(u, int(placement[v])) for u, v in graph.edges[~graph.control].tolist() if placement[u] != placement[v]}
    for op, device in {(u, int(placement[u])) for u, _ in away} | away:
        expected[device] += moves[op]
    assert device_loads(asked, placement, costs) == pytest.approx(expected)
