"""Annealing finds optima of small problems, repairs, never loses to its starts, and keeps its budget."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from envs.objectives.replacement import replacing
from envs.replacement.running import Running
from envs.simulation.simulator import Simulator, simulate
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.annealing import ALONE, MOST_UNITS, OF_UNIT, ROUNDS, Annealing, rounds_of
from placers.search import local_search
from placers.search import search as search_file
from placers.search.evaluations import energies
from placers.search.levels import levels_of
from placers.search.moves import Moves
from placers.search.starts import STARTS, cheap_placers, starts
from tests.oracle.toys import Toy, random_graph, toy_cluster, toy_graph


def optimum(problem: Problem) -> float:
    """Step seconds of the fastest placement, by trying all."""
    choices = itertools.product(range(len(problem.cluster)), repeat=problem.graph.num_units)
    return float(Simulator(problem).run_batch(np.array(list(choices))).step_seconds.min())


def test_it_solves_the_toy(four_ops_two_devices: Toy) -> None:
    plan = Annealing().place(four_ops_two_devices.problem, budget=60).plan
    assert simulate(four_ops_two_devices.problem, plan).step_seconds == four_ops_two_devices.best_seconds


@pytest.mark.parametrize("seed", range(6))
def test_it_finds_the_optimum_of_small_problems(seed: int) -> None:
    problem = Problem(random_graph(9, seed), toy_cluster(2, shared_out=True))
    plan, ordered = (
        Annealing(hot=0.1, order=order).place(problem, seed=seed, budget=800).plan for order in (False, True)
    )
    assert simulate(problem, plan).step_seconds == optimum(problem)
    assert simulate(problem, ordered).step_seconds <= optimum(problem)


def test_an_order_may_beat_every_placement_under_the_rule() -> None:
    problem = Problem(random_graph(9, seed=7), toy_cluster(2, shared_out=True))
    plans = [Annealing(hot=0.1).place(problem, seed=seed, budget=800).plan for seed in range(4)]
    assert min(simulate(problem, plan).step_seconds for plan in plans) < optimum(problem)


@pytest.mark.parametrize("budget", [0, 1, 2, 3, 4, 25])
def test_it_uses_exactly_its_budget(budget: int) -> None:
    problem = Problem(random_graph(20, seed=0), toy_cluster(3))
    assert Annealing().place(problem, budget=budget).simulations == budget


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("budget", [len(STARTS), 100, 5000])
def test_it_is_never_worse_than_its_starts(seed: int, budget: int) -> None:
    problem = Problem(random_graph(40, seed), toy_cluster(3, memory=1e9))
    first = starts(levels_of(problem), budget, seed).placements
    plan = Annealing().place(problem, seed=seed, budget=budget).plan
    assert simulate(problem, plan).step_seconds <= Simulator(problem).run_batch(first).step_seconds.min()


def test_with_one_simulation_it_returns_the_first_start() -> None:
    problem = Problem(random_graph(20, seed=1), toy_cluster(2))
    assert Annealing().place(problem, budget=1).plan.devices == cheap_placers()[0].place(problem).plan.devices


def test_it_repairs_starts_that_do_not_fit() -> None:
    # All outputs live until the last op has read them; no start counts them, for they are not kept for a backward pass.
    edges = [(i, 11) for i in range(11)]
    problem = Problem(toy_graph([1] * 12, edges, output_bytes=[10] * 11 + [0]), toy_cluster(3, memory=115))
    starts = [simulate(problem, placer.place(problem, budget=0).plan) for placer in cheap_placers()]
    tight = Problem(problem.graph, toy_cluster(3, memory=max(min(s.peak_bytes.max() for s in starts) - 1, 110)))
    assert simulate(tight, Annealing().place(tight, budget=300).plan).fits


def test_any_fit_has_less_energy_than_any_overflow() -> None:
    limits = np.array([100.0, 100.0])
    peaks = np.array([[100.0, 0.0], [101.0, 0.0], [150.0, 0.0], [150.0, 120.0]])
    found = np.zeros(4)
    energies(np.array([5000.0, 1.0, 1.0, 1.0]), peaks, limits, found)
    assert (np.diff(found) > 0).all()


def test_moves_change_a_copy_and_reach_every_placement() -> None:
    problem = Problem(random_graph(4, seed=0), toy_cluster(3))
    moves = Moves(problem, np.random.default_rng(0))
    placement: Ints = np.zeros(4, np.int64)
    seen = set()
    for _ in range(20_000):
        before = placement.copy()
        proposal = moves.propose(placement)
        assert (placement == before).all()
        assert (proposal != placement).any()
        placement = proposal
        seen.add(tuple(placement.tolist()))
    assert len(seen) == 3**4


def test_wrong_temperatures_are_refused() -> None:
    with pytest.raises(InputError, match="0 < cold <= hot"):
        Annealing(hot=0.1, cold=0.2)


ROUNDS_OF = Problem(random_graph(12, seed=3), toy_cluster(2, memory=1e9))


@pytest.mark.parametrize(
    ("units", "simulations", "rounds"),
    [(12, 2 * 12 * OF_UNIT, 1), (12, 3 * 12 * OF_UNIT, 3), (12, 10**9, ROUNDS), (MOST_UNITS + 1, 10**9, 1)],
)
def test_it_cools_down_again_where_there_are_many_simulations_for_each_of_few_units(
    units: int, simulations: int, rounds: int
) -> None:
    assert rounds_of(Problem(random_graph(units, seed=3), toy_cluster(2)), simulations) == rounds


@pytest.mark.parametrize(("simulations", "rounds"), [(16 * ALONE, 1), (24 * ALONE, 2), (36 * OF_UNIT, 3)])
def test_it_leaves_one_device_with_fewer(simulations: int, rounds: int) -> None:
    assert rounds_of(ROUNDS_OF, simulations, alone=True) == rounds
    assert rounds_of(ROUNDS_OF, 35 * OF_UNIT) == 1


def test_from_one_device_it_begins_elsewhere_and_comes_back_to_the_best() -> None:
    problem = Problem(random_graph(12, seed=3), toy_cluster(2, latency=100.0, memory=1e9))
    budget = 30 * ALONE + 40
    search = Annealing().begin(problem, 0, budget)
    search.step(0.0, budget - search.evaluations.simulations)
    assert search.energy > search.evaluations.incumbent.value
    while search.evaluations.simulations < budget:
        search.step(0.0, budget - search.evaluations.simulations)
    assert (search.round, search.energy) == (1, search.evaluations.incumbent.value)


def test_a_running_model_is_not_begun_again_at_random() -> None:
    running = replacing(ROUNDS_OF, Running(np.zeros(12, np.int64)))
    assert (rounds_of(running, 10**9), rounds_of(ROUNDS_OF, 10**9)) == (1, ROUNDS)


@pytest.mark.parametrize("seconds", [float("inf"), 100.0])
@pytest.mark.parametrize("units", [12, MOST_UNITS + 1])
def test_a_large_problem_and_a_running_model_are_not_left_for_a_random_placement(units: int, seconds: float) -> None:
    problem = Problem(random_graph(units, seed=0), toy_cluster(2, latency=100.0, memory=1e9))
    if units <= MOST_UNITS:
        problem = replacing(problem, Running(np.zeros(units, np.int64)))
    search = Annealing(seconds=seconds).begin(problem, 0, 10**6)
    assert (search.evaluations.best == search.evaluations.best[0]).all()
    search.step(0.0, 0)
    assert search.current.tolist() == search.evaluations.best.tolist()


@pytest.mark.parametrize("calls", [1, 7])
def test_its_rounds_begin_elsewhere_and_the_last_at_the_best(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = 4 * 12 * OF_UNIT + 60
    monkeypatch.setattr(local_search, "OPS_PER_CALL", 12 * 50 * calls)
    search = Annealing().begin(ROUNDS_OF, 0, budget)
    best = []
    while (left := budget - search.evaluations.simulations) > 0:
        before = search.round
        search.step(0.0, left)
        best += [search.energy - search.evaluations.incumbent.value] if search.round > before else []
    assert search.evaluations.simulations == budget
    assert (len(best), search.round) == (4, 3)
    assert max(best[1:-1]) > 0.0 == best[-1]


def test_a_search_that_was_stopped_in_a_later_round_ends_where_it_would_have_ended(tmp_path: Path) -> None:
    budget = 4 * 12 * OF_UNIT + 60
    whole = Annealing().place(ROUNDS_OF, budget=budget)
    search, other = (Annealing().begin(ROUNDS_OF, 0, budget) for _ in range(2))
    while search.round < 2:
        search.step(0.0, budget - search.evaluations.simulations)
    search_file._save(search, tmp_path / "search.npz", "label")
    search_file._load(other, tmp_path / "search.npz", "label")
    while other.evaluations.simulations < budget:
        other.step(0.0, budget - other.evaluations.simulations)
    assert tuple(other.evaluations.curve) == whole.curve
