"""What the simulator accepts, refuses and counts."""

from dataclasses import replace

import numpy as np
import pytest

from envs.plans.plan import Plan
from envs.simulation.simulator import Outcomes, Simulator, simulate
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import runtime_of
from tests.oracle.toys import Toy, random_graph, toy_cluster, toy_graph


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


def test_what_is_no_placement_is_refused(four_ops_two_devices: Toy) -> None:
    simulator = Simulator(four_ops_two_devices.problem)
    with pytest.raises(InputError, match="one device index for each of the 4 units of 'toy'"):
        simulator.run([0, 1])
    with pytest.raises(InputError, match="float64"):
        simulator.run(np.zeros(4))  # type: ignore[arg-type]
    for bad in (-1, 2):
        with pytest.raises(InputError, match=f"has devices 0 to 1, got {bad}"):
            simulator.run([0, 0, 0, bad])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_and_leaving_out_memory_change_no_bits(threads: int) -> None:
    problem = Problem(random_graph(40, 0), toy_cluster(3, launch=0.5, gap=0.25))
    placements = np.random.default_rng(0).integers(0, 3, (7, 40))
    alone = Simulator(problem).run_batch(placements)
    simulator = Simulator(problem)
    outcomes = simulator.run_batch(placements, threads=threads)
    assert outcomes.step_seconds.tolist() == alone.step_seconds.tolist()
    assert outcomes.peak_bytes.tolist() == alone.peak_bytes.tolist()
    assert simulator.seconds(placements, threads=threads).tolist() == alone.step_seconds.tolist()
    assert simulator.simulations == 2 * len(placements)
    assert simulator.timeline(placements[0]).peak_bytes.tolist() == alone.peak_bytes[0].tolist()


def test_a_multicast_copy_is_held_from_its_begin_whatever_weights_are() -> None:
    """The last weight and the one transfer have the same number, 3; the last op of 4 bytes comes before the copy."""
    uses = [(1, weight) for weight in range(4)]
    graph = toy_graph([1, 1, 0.5], [(0, 1)], output_bytes=[2, 1, 4], weights=[1, 1, 1, 1], weight_uses=uses)
    problem = Problem(graph, toy_cluster(2, shared_out=True, multicast=True), "none")
    assert Simulator(problem).run([0, 1, 1]).peak_bytes.tolist() == [2, 4 + 4]


def test_a_given_order_decides_who_goes_first() -> None:
    """a, b and c wait for one device; in the order c, a, b the consumer of c starts after one second."""
    problem = Problem(toy_graph([1, 2, 1, 5], [(2, 3)]), toy_cluster(2))
    placement = [0, 0, 0, 1]
    assert Simulator(problem, order="fifo").timeline(placement).start.tolist()[:3] == [0, 1, 3]
    ordered = Simulator(problem, order=np.array([1, 2, 0, 3])).timeline(placement)
    assert ordered.start.tolist()[:3] == [1, 2, 0]


def test_what_becomes_ready_during_a_hold_may_still_go_first() -> None:
    """After a, the device rests until 3, with b in its queue; then or before, c arrives, and is more urgent."""
    for arrives, c_first in ((2.5, True), (3.0, True), (3.5, False)):
        graph = toy_graph([1, 2, 1, 1], [(3, 2)], output_bytes=[0, 0, 0, arrives - 1])
        problem = Problem(graph, toy_cluster(2, launch=2.0))
        simulator = Simulator(problem, order=np.array([0, 2, 1, 3]))
        starts = [0, 6, 3, 0] if c_first else [0, 3, 7, 0]
        assert simulator.timeline([0, 0, 0, 1]).start.tolist() == starts
        assert simulator.seconds(np.array([[0, 0, 0, 1]])).tolist() == [8.0]
        _, run = simulator.for_compiled_code()
        assert run.tasks["start"][:4].tolist() == starts


def test_priorities_may_be_changed_between_two_runs() -> None:
    problem = Problem(toy_graph([1, 2, 1, 5], [(2, 3)]), toy_cluster(2))
    simulator = Simulator(problem, order=np.array([1, 2, 0, 3]))
    assert simulator.timeline([0, 0, 0, 1]).start.tolist()[:3] == [1, 2, 0]
    blueprint, _ = simulator.for_compiled_code()
    blueprint.ops["priority"][2] = 9.0
    assert simulator.timeline([0, 0, 0, 1]).start.tolist()[:3] == [0, 1, 3]


def test_a_run_that_was_given_up_leaves_nothing_behind() -> None:
    problem = Problem(random_graph(60, 0), toy_cluster(3, launch=0.5, gap=0.25))
    placements = np.random.default_rng(0).integers(0, 3, (5, 60))
    for runtime in ("fifo", "ideal", "parallelize:host=none", "parallelize"):
        problem = replace(problem, runtime=runtime_of(runtime))
        expected = Simulator(problem).seconds(placements).tolist()
        simulator = Simulator(problem)
        _, run = simulator.for_compiled_code()
        for idle in (0.0, 1.0, 5.0):
            run.may_idle[:] = idle
            assert np.isinf(simulator.seconds(placements)).any()
            run.may_idle[:] = np.inf
            assert simulator.seconds(placements).tolist() == expected


def test_bad_costs_and_orders_are_refused(four_ops_two_devices: Toy) -> None:
    problem = four_ops_two_devices.problem
    with pytest.raises(InputError, match="did you mean 'fifo'"):
        Simulator(problem, order="fif")
    for order in ([1, 2, 3], [0, 1, 2, np.nan], [0, 1, 2, np.inf]):
        with pytest.raises(InputError, match="one finite number for each of the 4 ops"):
            Simulator(problem, order=np.array(order))
    with pytest.raises(InputError, match=r"shape \(4, 3\), expected \(4, 2\)"):
        Simulator(replace(problem, op_seconds=np.zeros((4, 3))))
    seconds = np.zeros((4, 2))
    seconds[2, 1] = np.nan
    with pytest.raises(InputError, match="'c' takes nan seconds on 'gpu:1'"):
        Simulator(replace(problem, op_seconds=seconds))


def test_the_best_outcome_fits_if_any_does() -> None:
    peaks = np.array([[9.0, 0.0], [2.0, 2.0], [1.0, 3.0]])
    seconds = np.array([1.0, 3.0, 2.0])
    assert Outcomes(seconds, peaks, np.array([False, True, True])).best() == 2
    assert Outcomes(seconds, peaks, np.zeros(3, np.bool_)).best() == 1
