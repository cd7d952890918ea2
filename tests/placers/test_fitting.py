"""Candidates of which none fits in memory are changed until one does; else nothing changes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.objectives import Evaluator, evaluator_of
from envs.prepared_problem import outcomes_of
from envs.simulation.simulator import Simulator, simulate
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.candidate import Candidate
from placers.learned.sequential import coarse, placer
from placers.learned.sequential.fitting import best_by_simulation, made_to_fit
from tests.drawn import examples
from tests.oracle.toys import random_graph, toy_cluster


def problem_of(seed: int, memory: float) -> Problem:
    return Problem(random_graph(24, seed=seed), toy_cluster(3, memory=memory), "sgd")


def crowded(problem: Problem) -> Candidate:
    """All on one device."""
    placement: Ints = np.zeros(len(problem.units), np.int64)
    return Candidate(placement, None, Simulator(problem).run(placement))


def with_room(problem: Problem, factor: float, placement: Ints) -> Problem:
    """Each device has as much as the placement needs of its fullest one, times a factor."""
    most = float(Simulator(problem).run(placement).peak_bytes.max())
    devices = tuple(replace(device, memory_bytes=factor * most) for device in problem.cluster.devices)
    return replace(problem, cluster=replace(problem.cluster, devices=devices))


@settings(max_examples=examples(20, 8), deadline=None)
@given(st.integers(0, 500), st.integers(1, 16), st.floats(0.4, 2.0))
def test_the_best_of_what_fits_is_no_other_and_simulations_are_kept(seed: int, count: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    loose = problem_of(seed, 1e12)
    placements = rng.integers(0, 3, (count, len(loose.units)))
    problem = with_room(loose, factor, placements[0])
    outcomes, evaluator = Simulator(problem).run_batch(placements), evaluator_of(problem)
    found = best_by_simulation(evaluator, placements).placement
    assert evaluator.simulations <= count
    rows = np.arange(count)
    if outcomes.fits[(rows % 2 == 0) | (rows == count - 1)].any():
        assert np.array_equal(found, placements[outcomes.best()])
    else:
        assert Simulator(problem).run(found).peak_bytes.max() <= outcomes.peak_bytes[::2].max(axis=1).min()


@settings(max_examples=examples(20, 8), deadline=None)
@given(st.integers(0, 500), st.integers(2, 12), st.floats(0.4, 2.0))
def test_candidates_are_compared_under_their_orders(seed: int, count: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    loose = problem_of(seed, 1e12)
    placements = rng.integers(0, 3, (count, len(loose.units)))
    problem = with_room(loose, factor, placements[0])
    orders = rng.random((count, len(problem.graph)))
    evaluator, simulator = evaluator_of(problem), Simulator(problem)
    outcomes = simulator.run_ordered(placements, orders)
    found = best_by_simulation(evaluator, placements, orders)
    assert evaluator.simulations <= count
    rows = np.arange(count)
    if outcomes.fits[(rows % 2 == 0) | (rows == count - 1)].any():
        best = outcomes.best()
        assert np.array_equal(found.placement, placements[best])
        assert found.order is not None
        assert np.array_equal(found.order, orders[best])
    again = outcomes_of(evaluator, found.placement[None], None if found.order is None else found.order[None]).of(0)
    assert (again.step_seconds, again.fits) == (found.outcome.step_seconds, found.outcome.fits)


@pytest.mark.parametrize("seed", range(4))
def test_a_crowded_candidate_is_changed_until_it_fits(seed: int) -> None:
    loose = problem_of(seed, 1e12)
    problem = with_room(loose, 0.7, np.zeros(len(loose.units), np.int64))
    evaluator = evaluator_of(problem)
    found = made_to_fit(evaluator, crowded(problem), 48)
    assert Simulator(problem, order=found.order).run(found.placement).fits
    assert evaluator.simulations <= 48


@pytest.mark.parametrize("count", [1, 2])
def test_of_few_candidates_none_gives_way(count: int) -> None:
    problem = problem_of(1, 1.0)
    placements = np.zeros((count, len(problem.units)), np.int64)
    assert np.array_equal(best_by_simulation(evaluator_of(problem), placements).placement, placements[0])


def test_units_of_a_group_are_moved_together() -> None:
    loose = problem_of(3, 1e12)
    problem = with_room(loose, 0.7, np.zeros(len(loose.units), np.int64))
    groups = np.arange(len(loose.units)) // 2
    coarse = replace(problem, graph=replace(problem.graph, group=groups[loose.graph.units]))
    assert len(coarse.units) == len(loose.units) // 2
    found = made_to_fit(evaluator_of(problem), crowded(problem), 48, coarse).placement
    assert found.any()
    assert np.array_equal(found[0::2], found[1::2])


@pytest.mark.parametrize(("most", "is_coarse"), [(20, True), (24, False)])
def test_the_placer_changes_large_problems_by_groups(
    most: int, is_coarse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, given = problem_of(1, 1e9), list[Problem | None]()
    for module in (coarse, placer):
        monkeypatch.setattr(module, "MOST_UNITS", most)

    def noting(
        evaluator: Evaluator, candidate: Candidate, simulations: int, joined: Problem | None, seconds: float
    ) -> Candidate:
        given.append(joined)
        return made_to_fit(evaluator, candidate, simulations, joined, seconds)

    monkeypatch.setattr(placer, "made_to_fit", noting)
    built = placer.build(untrained=True, groups=8)
    built.made_to_fit(evaluator_of(problem), crowded(problem), 3, math.inf)
    (joined,) = given
    assert (joined is not None) == is_coarse
    assert joined is None or len(joined.units) < len(problem.units)


@pytest.mark.parametrize("samples", [1, 4])
def test_plans_of_a_policy_are_made_to_fit_with_what_the_budget_leaves(samples: int) -> None:
    loose = problem_of(2, 1e12)
    problem = with_room(loose, 0.5, np.zeros(len(loose.units), np.int64))
    built = placer.build(untrained=True, samples=samples)
    result = built.place(problem, budget=200)
    assert result.simulations <= 200
    assert simulate(problem, result.plan).fits
    assert built.place(problem, budget=200).plan == result.plan
