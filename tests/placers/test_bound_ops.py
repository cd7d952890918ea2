"""Where a graph says on which devices its ops may run, searches try nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from envs.objectives import evaluator_of
from envs.prepared_problem import PreparedProblem
from envs.simulation.held_memory import HeldMemory
from envs.simulation.simulator import simulate
from graphs.foundation import by_name
from graphs.problem import Problem, objective_of
from placers.search.moves import Moves, random_placements
from placers.solvers.repair import repaired
from tests.oracle.toys import random_graph, toy_cluster, toy_graph

NAMES = [device.name for device in toy_cluster(3).devices]
BOUND = ((NAMES[0],), (NAMES[1], NAMES[2]), (), (NAMES[2],), ())
PROBLEM = Problem(replace(random_graph(30, seed=6), devices=BOUND * 6), toy_cluster(3, memory=1e9))


def may_run(placements: np.ndarray) -> bool:
    """Whether all placements, (plans, units), are ones that the graph allows."""
    assert PROBLEM.allowed is not None
    return bool(PROBLEM.allowed[np.arange(30), placements].all())


@pytest.mark.parametrize("objective", ["step-time", "max-load"])
@pytest.mark.parametrize("spec", ["annealing", "genetic:population=20", "hill_climbing:patience=20", "random"])
def test_a_search_returns_what_it_evaluated(spec: str, objective: str) -> None:
    problem = replace(PROBLEM, objective=objective_of(objective))
    result = by_name.build("placers", spec).place(problem, seed=2, budget=300)
    result.plan.check(problem)
    if objective == "step-time":
        assert result.curve[-1][1] == simulate(problem, result.plan).step_seconds
    else:
        assert result.curve[-1][1] == evaluator_of(problem).seconds(result.plan.per_unit(problem)[None])[0]
    assert result.simulations == 300


def test_moves_try_every_allowed_placement_and_no_other() -> None:
    graph = replace(random_graph(4, seed=0), devices=BOUND[:4])
    problem = Problem(graph, toy_cluster(3))
    moves = Moves(problem, np.random.default_rng(0))
    placement = np.array([0, 1, 1, 2])
    seen = set()
    for _ in range(500):
        proposal = moves.propose(placement)
        assert problem.allowed is not None
        assert problem.allowed[np.arange(4), proposal].all()
        assert (proposal != placement).any()
        placement = proposal
        seen.add(tuple(placement.tolist()))
    assert len(seen) == 1 * 2 * 3 * 1


def test_where_nothing_may_move_nothing_moves() -> None:
    problem = Problem(replace(random_graph(4, seed=0), devices=((NAMES[1],),) * 4), toy_cluster(3))
    moves = Moves(problem, np.random.default_rng(0))
    assert moves.propose(np.ones(4, np.int64)).tolist() == [1] * 4


def test_random_placements_are_uniform_over_what_is_allowed() -> None:
    drawn = random_placements(PROBLEM, np.random.default_rng(0), 3000)
    assert may_run(drawn)
    assert set(drawn[:, 0]) == {0}
    assert np.bincount(drawn[:, 1], minlength=3) / 3000 == pytest.approx([0, 0.5, 0.5], abs=0.05)
    assert np.bincount(drawn[:, 2], minlength=3) / 3000 == pytest.approx([1 / 3] * 3, abs=0.05)


def test_without_bounds_the_same_numbers_are_drawn() -> None:
    free = Problem(random_graph(30, seed=6), toy_cluster(3))
    drawn = random_placements(free, np.random.default_rng(4), 5)
    assert (drawn == np.random.default_rng(4).integers(3, size=(5, 30))).all()


def test_repair_moves_nothing_where_it_may_not_run() -> None:
    graph = toy_graph([1, 1, 1], [(0, 1), (1, 2)], weights=[60, 60, 60], weight_uses=[(0, 0), (1, 1), (2, 2)])
    problem = Problem(replace(graph, devices=((NAMES[0],), (NAMES[0], NAMES[2]), (NAMES[1],))), toy_cluster(3))
    units, held = problem.units, HeldMemory.of(problem)
    assert repaired(units, held, np.array([0, 0, 1]), problem.allowed).tolist() == [0, 2, 1]


def test_a_rollout_counts_as_the_plan_that_it_becomes() -> None:
    prepared, drawn = PreparedProblem(PROBLEM), np.random.default_rng(0).integers(3, size=(8, 30))
    outcomes = prepared.evaluate(drawn)
    assert prepared.incumbent.placement is not None
    assert may_run(prepared.incumbent.placement[None])
    assert outcomes.step_seconds.tolist() == evaluator_of(PROBLEM).seconds(PROBLEM.made_allowed(drawn)).tolist()
