"""What a search for a running model moved in vain goes back, and nothing else changes."""

from dataclasses import replace

import numpy as np
import pytest

from envs.objectives.replacement import replacing
from envs.replacement.evaluator import ReplacementEvaluator
from envs.replacement.running import LEFT, Running
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.search.evaluations import Evaluations
from placers.search.moved_back import left_to_move_back, move_back
from tests.oracle.toys import random_graph, toy_cluster, toy_graph


def of_two_units() -> Problem:
    """The first is fast on device 1 alone, and the second anywhere; they run on 0 and 2."""
    graph = toy_graph([1, 1], [], weights=[10, 1], weight_uses=[(0, 0), (1, 1)])
    seconds = np.array([[100.0, 5.0, 100.0], [1.0, 1.0, 1.0]])
    problem = Problem(graph, toy_cluster(3), "none", op_seconds=seconds)
    return replacing(problem, Running(np.array([0, 2]), steps=100.0))


def evaluated(problem: Problem, placement: Ints) -> Evaluations:
    """A search that has seen one placement, (units,)."""
    evaluations = Evaluations(problem, placement)
    evaluations.energies(placement[None])
    return evaluations


def test_a_unit_that_moves_beside_a_larger_one_for_nothing_goes_back() -> None:
    evaluations = evaluated(of_two_units(), np.array([1, 0]))
    energy = evaluations.incumbent.value
    move_back(evaluations, of_two_units(), 100, np.inf)
    assert evaluations.best.tolist() == [1, 2]
    assert evaluations.incumbent.value == energy


@pytest.mark.parametrize(("budget", "until"), [(1, np.inf), (100, 0.0)])
def test_nothing_goes_back_without_simulations_or_seconds(budget: int, until: float) -> None:
    evaluations = evaluated(of_two_units(), np.array([1, 0]))
    move_back(evaluations, of_two_units(), budget, until)
    assert (evaluations.best.tolist(), evaluations.simulations) == ([1, 0], 1)


@pytest.mark.parametrize("seed", range(4))
def test_neither_the_objective_nor_the_bytes_grow(seed: int) -> None:
    rng, graph = np.random.default_rng(seed), random_graph(12, seed)
    uses = np.stack([np.arange(12)] * 2, axis=1)
    weighted = replace(graph, weights=rng.integers(1, 9, 12).astype(np.float64), weight_uses=uses)
    problem = replacing(Problem(weighted, toy_cluster(3), "none"), Running(rng.integers(LEFT, 3, 12), steps=50.0))
    evaluations = evaluated(problem, rng.integers(3, size=12))
    evaluator, before, energy = evaluations.evaluator, evaluations.best, evaluations.incumbent.value
    assert isinstance(evaluator, ReplacementEvaluator)
    move_back(evaluations, problem, 1000, np.inf)
    assert evaluations.incumbent.value == Evaluations(problem, before).energies(evaluations.best[None])[0] <= energy
    assert evaluator.moves(evaluations.best[None])[1][0] < evaluator.moves(before[None])[1][0]


def test_a_search_for_what_runs_nowhere_keeps_all_it_has() -> None:
    problem = Problem(random_graph(5, 0), toy_cluster(2))
    evaluations = evaluated(problem, np.zeros(5, np.int64))
    move_back(evaluations, problem, 100, np.inf)
    assert left_to_move_back(problem, 100, 1.0) == (0, 0.0)
    assert evaluations.simulations == 1
