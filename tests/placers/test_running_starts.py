"""Where searches for running models begin, and that they find what is best of a small one."""

from itertools import product

import numpy as np
import pytest

from envs.objectives import evaluator_of
from envs.objectives.replacement import replacing
from envs.replacement.running import LEFT, Running
from graphs.foundation import by_name
from graphs.problem import Problem
from placers.learned.equal_devices import renamed_to_stay
from placers.search.running_starts import running_starts
from tests.oracle.toys import random_graph, toy_cluster, toy_graph


def running(units: int = 5, devices: int = 3) -> Problem:
    """A random graph of which each unit on the first device has lost it."""
    placement = np.arange(units) % (devices + 1) - 1
    return replacing(Problem(random_graph(units, 2), toy_cluster(devices)), Running(placement, steps=3.0))


def test_they_keep_all_that_can_stay_and_exchange_the_busiest_device_with_the_others() -> None:
    graph = toy_graph([4, 1, 2], [])
    problem = replacing(Problem(graph, toy_cluster(3)), Running(np.array([0, 1, 1])))
    assert running_starts(problem).tolist() == [[0, 1, 1], [1, 0, 0], [2, 1, 1]]
    lost = replacing(Problem(graph, toy_cluster(2)), Running(np.array([0, 1, LEFT])))
    assert running_starts(lost).tolist() == [[0, 1, 0], [0, 1, 1], [1, 0, 0]]
    assert running_starts(Problem(graph, toy_cluster(2))).shape == (0, 3)


@pytest.mark.parametrize("placer", ["hill_climbing", "annealing"])
def test_searches_find_the_least_of_all_placements(placer: str) -> None:
    problem = running()
    everything = np.array(list(product(range(3), repeat=5)))
    seconds = evaluator_of(problem).seconds(everything)
    found = by_name.build("placers", placer).place(problem, budget=600)
    assert evaluator_of(problem).seconds(found.plan.per_unit(problem)[None])[0] == seconds.min()
    assert found.curve[-1][1] == seconds.min()
    assert 590 <= found.simulations <= 600


@pytest.mark.parametrize("placer", ["hill_climbing", "annealing"])
@pytest.mark.parametrize("budget", [1, 2, 4])
def test_they_take_no_more_simulations_than_they_may(placer: str, budget: int) -> None:
    assert by_name.build("placers", placer).place(running(), budget=budget).simulations == budget


def test_what_moving_costs_decides_whether_it_is_worth_it() -> None:
    graph = toy_graph([3, 3], [], weights=[10, 10], weight_uses=[(0, 0), (1, 1)])
    together = Running(np.array([0, 0]), steps=1.0), Running(np.array([0, 0]), steps=100.0)
    dear, cheap = (replacing(Problem(graph, toy_cluster(2), "none"), each) for each in together)
    placer = by_name.build("placers", "hill_climbing")
    assert placer.place(dear, budget=50).plan.per_unit(dear).tolist() == [0, 0]
    assert sorted(placer.place(cheap, budget=50).plan.per_unit(cheap).tolist()) == [0, 1]


def test_equal_devices_are_renamed_so_that_most_bytes_stay() -> None:
    graph = toy_graph([1, 1, 1], [], weights=[8, 4, 2], weight_uses=[(0, 0), (1, 1), (2, 2)])
    problem = Problem(graph, toy_cluster(3), "none")
    runs = np.array([0, 1, 2])
    assert renamed_to_stay(problem, np.zeros(3, np.int64), np.array([2, 0, 0]), runs).tolist() == [0, 1, 1]
    assert renamed_to_stay(problem, np.array([0, 1, 0]), np.array([2, 0, 0]), runs).tolist() == [0, 2, 2]
    assert renamed_to_stay(problem, np.arange(3), np.array([2, 0, 0]), runs).tolist() == [2, 0, 0]
