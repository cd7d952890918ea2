"""Lower bounds that are worth something; that they hold for random problems is tested beside the oracle."""

from dataclasses import replace

import numpy as np
import pytest

from envs.bounds import lower_bound, path_bound, work_bound
from envs.simulation.simulator import Simulator
from graphs.problem import Problem
from tests.oracle.toys import Toy, toy_cluster, toy_graph


def test_a_chain_takes_its_length_and_its_launches() -> None:
    problem = Problem(toy_graph([1, 2, 3], [(0, 1), (1, 2)]), toy_cluster(2, launch=0.5))
    assert path_bound(problem, np.tile([[1.0], [2.0], [3.0]], 2)) == 7
    assert Simulator(problem).run([0, 0, 0]).step_seconds == 7


def test_a_chain_may_have_to_move() -> None:
    seconds = np.array([[1.0, 9.0], [9.0, 1.0]])
    problem = Problem(toy_graph([1, 1], [(0, 1)], output_bytes=[2, 0]), toy_cluster(2), op_seconds=seconds)
    assert lower_bound(problem) == 4  # with the transfer, not 2
    assert Simulator(problem).run([0, 1]).step_seconds == 4


def test_independent_ops_share_the_devices() -> None:
    problem = Problem(toy_graph([2, 2, 2, 2], []), toy_cluster(2))
    assert lower_bound(problem) == 4
    unequal = np.tile([1.0, 3.0], (4, 1))  # the first device is three times as fast
    assert work_bound(problem, unequal) == pytest.approx(3.0)
    assert Simulator(replace(problem, op_seconds=unequal)).run([0, 0, 0, 1]).step_seconds == 3


def test_units_stay_together() -> None:
    tied = Problem(toy_graph([2, 2], [], group=[0, 0]), toy_cluster(2))
    seconds = np.array([[1.0, 5.0], [5.0, 1.0]])
    assert work_bound(tied, seconds) == 3
    assert work_bound(Problem(toy_graph([2, 2], []), toy_cluster(2)), seconds) == 1


def test_the_toy_is_bounded_by_its_critical_path(four_ops_two_devices: Toy) -> None:
    assert lower_bound(four_ops_two_devices.problem) == 5
