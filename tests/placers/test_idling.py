"""A run that is given up would have taken longer than its limit, and others take what they always take."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as some

from envs.simulation.simulator import Simulator
from graphs.op_graph import Ints
from graphs.problem import Problem
from graphs.runtime import runtime_of
from placers.search.idling import BusyTimes, add_up, allow_idling, follow_move, keep_move
from placers.search.moves import MoveTables, move
from tests.oracle.strategies import Case, cases
from tests.oracle.toys import random_graph, toy_cluster, toy_graph


def seconds_within(simulator: Simulator, placement: Ints, limit: float) -> float:
    """Seconds of a placement, (units,), or infinity if they are found to be above a limit."""
    work = BusyTimes.of(simulator.problem, simulator.costs.op_seconds)
    add_up(work, placement.astype(np.uint32))
    work.moved[:] = work.placed
    _, run = simulator.for_compiled_code()
    can_be = allow_idling(work, limit, run.may_idle)
    found = float(simulator.seconds(placement[None])[0]) if can_be else np.inf
    run.may_idle[:] = np.inf
    return found


@settings(deadline=None)
@given(cases() | cases(streams=True), some.sampled_from([0.0, 0.5, 0.9, 1.0, 1.1]))
def test_only_what_is_too_slow_is_given_up(case: Case, share: float) -> None:
    simulator = Simulator(case.problem, order=case.order)
    for placement, seconds in zip(case.placements, simulator.seconds(case.placements).tolist(), strict=True):
        limit = share * seconds
        found = seconds_within(simulator, placement, limit)
        assert found == seconds or (found == np.inf and seconds > limit)


def test_a_device_that_waits_too_long_or_has_too_much_to_do_ends_a_run() -> None:
    """Ops a, b and c of a second each, one after the other; a second to send an output."""
    simulator = Simulator(Problem(toy_graph([1, 1, 1], [(0, 1), (1, 2)]), toy_cluster(2, launch=0.25)))
    alone, there_and_back = np.zeros(3, np.int64), np.array([0, 1, 0])
    assert seconds_within(simulator, alone, 3.5) == 3.5  # two launches between them
    assert seconds_within(simulator, alone, 3.4) == np.inf
    assert seconds_within(simulator, there_and_back, 5.0) == 5.0
    assert seconds_within(simulator, there_and_back, 4.9) == np.inf
    _, run = simulator.for_compiled_code()
    assert np.isinf(run.may_idle).all()


def test_a_device_that_waits_for_a_copy_is_idle() -> None:
    """The same ops where devices are streams: gpu:0 waits from 1 to 4 for what it sends and for what comes back."""
    loop, graph = runtime_of("parallelize:host=none"), toy_graph([1, 1, 1], [(0, 1), (1, 2)])
    simulator, placement = Simulator(Problem(graph, toy_cluster(2), runtime=loop)), np.array([0, 1, 0])
    assert seconds_within(simulator, placement, 5.0) == 5.0
    assert seconds_within(simulator, placement, 4.9) == np.inf


def test_work_that_follows_moves_is_that_of_the_placement_and_moves_are_kept_or_forgotten() -> None:
    problem = Problem(random_graph(12, seed=0), toy_cluster(3, launch=0.25))
    unit_seconds = BusyTimes.of(problem, Simulator(problem).costs.op_seconds).unit_seconds
    work, tables = BusyTimes.of(problem, Simulator(problem).costs.op_seconds), MoveTables.of(problem)
    placement, generator = np.zeros(12, np.uint32), np.random.default_rng(0)
    add_up(work, placement)
    for number in range(30):
        before = placement.copy()
        follow_move(work, tables, placement, move(tables, placement, 0, generator))
        expected = [unit_seconds[placement == device, device].sum() for device in range(3)]
        np.testing.assert_allclose(work.moved, expected, atol=1e-9)
        if number % 2:
            keep_move(work)
        else:
            placement[:] = before
