"""Hill climbing finds a plan that fits where tiny problems have one, and the same for the same seed."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.simulation.simulator import Simulator
from graphs.problem import Problem
from placers.annealing import Annealing
from placers.search.first_fit import first_fit
from tests.drawn import examples
from tests.oracle.toys import random_graph, toy_cluster

SIMULATIONS = 2000


def problem_of(seed: int, units: int, memory: float = 1e12) -> Problem:
    return Problem(random_graph(units, seed=seed), toy_cluster(2, memory=memory), "sgd")


def with_memory(problem: Problem, memory: float) -> Problem:
    return replace(problem, cluster=problem.cluster.with_each_device(memory_bytes=memory))


def least_peak(problem: Problem) -> float:
    """Bytes, of all placements under the problem's rule."""
    every = np.array(list(product(range(2), repeat=len(problem.units))))
    return float(Simulator(problem).run_batch(every).peak_bytes.max(axis=1).min())


@settings(max_examples=examples(20, 8), deadline=None)
@given(st.integers(0, 500), st.integers(3, 7), st.integers(0, 127))
def test_it_fits_where_any_plan_does(seed: int, units: int, start: int) -> None:
    loose = problem_of(seed, units)
    problem = with_memory(loose, 1.05 * least_peak(loose))
    found = first_fit(problem, start >> np.arange(units) & 1, SIMULATIONS)
    assert found.curve
    again = Simulator(problem, order=found.order).run(found.best)
    assert (again.step_seconds, again.fits) == (found.curve[-1][1], True)


@settings(max_examples=examples(10, 5), deadline=None)
@given(st.integers(0, 500), st.integers(0, 60))
def test_a_seed_decides_and_the_budget_is_kept(seed: int, simulations: int) -> None:
    problem = problem_of(seed, 12, memory=40.0)
    one, other = (first_fit(problem, np.zeros(12, np.int64), simulations, seed=seed) for _ in range(2))
    assert one.simulations == other.simulations <= simulations
    assert np.array_equal(one.best, other.best)
    assert np.array_equal(one.priorities, other.priorities)


def test_a_plan_that_fits_is_left_alone() -> None:
    problem, placement = problem_of(1, 9), np.arange(9) % 2
    found = first_fit(problem, placement, SIMULATIONS)
    assert np.array_equal(found.best, placement)
    assert found.simulations == 1


def test_searches_begin_where_a_plan_fits() -> None:
    loose = problem_of(2, 7)
    problem = with_memory(loose, 1.02 * least_peak(loose))
    plan = Annealing().place(problem, budget=400).plan
    assert Simulator(problem, order=plan.order).run(plan.per_unit(problem)).fits
