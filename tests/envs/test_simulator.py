"""What the simulator accepts, refuses and counts."""

import numpy as np
import pytest

from envs.plan import Plan
from envs.simulator import Outcomes, Simulator, simulate
from graphs.errors import InputError
from graphs.problem import Problem
from tests.oracle.strategies import Fixed
from tests.oracle.toys import Toy, toy_cluster, toy_graph


def test_simulations_are_counted(four_ops_two_devices: Toy) -> None:
    simulator = Simulator(four_ops_two_devices.problem)
    simulator.run([0, 0, 0, 0])
    simulator.run_batch(np.zeros((5, 4), np.int32))
    simulator.timeline([0, 1, 0, 1])
    assert simulator.simulations == 7
    assert len(simulator.run_batch(np.zeros((0, 4), np.int64)).step_seconds) == 0


def test_a_placement_is_per_unit() -> None:
    tied = Problem(toy_graph([1, 1, 1], [(0, 1), (1, 2)], group=[0, -1, 0]), toy_cluster(2))
    timeline = Simulator(tied).timeline([0, 1])
    assert timeline.placement.tolist() == [0, 1, 0]
    assert timeline.step_seconds == 5


def test_a_plan_is_simulated_and_checked_first(four_ops_two_devices: Toy) -> None:
    toy = four_ops_two_devices
    assert simulate(toy.problem, Plan.of_units(toy.problem, toy.best_placement)).step_seconds == toy.best_seconds
    with pytest.raises(InputError, match="for another graph"):
        simulate(toy.problem, Plan.of([0, 0]))
    with pytest.raises(InputError, match="'b' is placed on 2 devices"):
        simulate(toy.problem, Plan(((0,), (0, 1), (0,), (0,))))


def test_what_is_no_placement_is_refused(four_ops_two_devices: Toy) -> None:
    simulator = Simulator(four_ops_two_devices.problem)
    with pytest.raises(InputError, match="one device index for each of the 4 units of 'toy'"):
        simulator.run([0, 1])
    with pytest.raises(InputError, match="float64"):
        simulator.run(np.zeros(4))  # type: ignore[arg-type]
    for bad in (-1, 2):
        with pytest.raises(InputError, match=f"has devices 0 to 1, got {bad}"):
            simulator.run([0, 0, 0, bad])


def test_bad_costs_and_priorities_are_refused(four_ops_two_devices: Toy) -> None:
    problem = four_ops_two_devices.problem
    with pytest.raises(InputError, match="did you mean 'fifo'"):
        Simulator(problem, priority="fif")
    with pytest.raises(InputError, match=r"shape \(4, 3\), expected \(4, 2\)"):
        Simulator(problem, cost_model=Fixed(np.zeros((4, 3))))
    seconds = np.zeros((4, 2))
    seconds[2, 1] = np.nan
    with pytest.raises(InputError, match="'c' takes nan seconds on 'gpu:1'"):
        Simulator(problem, cost_model=Fixed(seconds))


def test_the_best_outcome_fits_if_any_does() -> None:
    peaks = np.array([[9.0, 0.0], [2.0, 2.0], [1.0, 3.0]])
    seconds = np.array([1.0, 3.0, 2.0])
    assert Outcomes(seconds, peaks, np.array([False, True, True])).best() == 2
    assert Outcomes(seconds, peaks, np.zeros(3, np.bool_)).best() == 1
