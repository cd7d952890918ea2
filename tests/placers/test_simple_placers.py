"""A single device, chance, and turns."""

import numpy as np

from envs.simulation.simulator import simulate
from graphs.cluster import Cluster, Device
from graphs.problem import Problem
from placers.random import Random
from placers.round_robin import RoundRobin
from placers.single_device import SingleDevice
from tests.oracle.toys import random_graph, toy_cluster, toy_graph


def three_devices(*memory: float) -> Cluster:
    """Three devices, the second the fastest and the third the slowest."""
    devices = tuple(Device(f"gpu:{i}", "gpu", s, s, m) for i, (s, m) in enumerate(zip((2, 3, 1), memory, strict=True)))
    return Cluster("three", devices, np.zeros((3, 3)), np.ones((3, 3)), np.zeros((3, 3), np.int64))


def test_a_single_device_is_the_fastest_that_fits() -> None:
    graph = toy_graph([1, 1], [(0, 1)], weights=[50], weight_uses=[(0, 0)])
    for memory, expected in (((99, 99, 99), 1), ((99, 9, 99), 0), ((9, 9, 99), 2), ((9, 12, 10), 1)):
        for budget in (0, 1):
            result = SingleDevice().place(Problem(graph, three_devices(*memory)), budget=budget)
            assert result.plan.placement.tolist() == [expected, expected]
            assert result.simulations == budget


def test_chance_is_uniform_and_depends_on_the_seed() -> None:
    problem = Problem(random_graph(3000, seed=0, weights=False), toy_cluster(3))
    plans = [Random().place(problem, seed=seed).plan for seed in (0, 1)]
    assert plans[0].devices != plans[1].devices
    assert (np.abs(np.bincount(plans[0].placement, minlength=3) - 1000) < 150).all()


def test_the_best_of_more_draws_is_never_worse() -> None:
    problem = Problem(random_graph(20, seed=1), toy_cluster(3, memory=1e9))
    seconds = [
        simulate(problem, Random().place(problem, budget=budget).plan).step_seconds for budget in (1, 2, 20, 600)
    ]
    assert seconds == sorted(seconds, reverse=True)


def test_turns_are_taken_in_topological_order() -> None:
    problem = Problem(toy_graph([1] * 4, [(3, 2), (2, 1), (1, 0)]), toy_cluster(2))
    assert RoundRobin().place(problem).plan.placement.tolist() == [1, 0, 1, 0]


def test_tied_ops_take_one_turn() -> None:
    problem = Problem(toy_graph([1] * 4, [(0, 1), (1, 2), (2, 3)], group=[0, -1, 0, -1]), toy_cluster(3))
    assert RoundRobin().place(problem).plan.placement.tolist() == [0, 1, 0, 2]
