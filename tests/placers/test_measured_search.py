"""The search by few plans that are run, on machines that are not as they are simulated; nothing is timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from envs.costs.costs import costs_of
from envs.objectives import evaluate_objective
from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator, simulate
from graphs.foundation.errors import DoesNotFitError, InputError
from graphs.op_graph import Floats
from graphs.problem import Problem, objective_of
from placers.annealing import Annealing
from placers.measured_search import MeasuredSearch
from placers.search.likely_costs import LikelyCosts
from placers.search.moves import Moves, random_placements
from tests.oracle.toys import random_graph, toy_cluster
from tests.placers.hidden_machine import HiddenMachine

MACHINE = Path(__file__).with_name("hidden_machine.py")
GRAPH = replace(random_graph(24, seed=3), kinds=("product", "sum", "view", "product") * 6)
SIMULATED = Problem(GRAPH, toy_cluster(3, memory=1e9))
RUNS, BUDGET = 20, 2000


def real(seed: int, knobs: str = "") -> Problem:
    """The problem on the machine of a seed."""
    return replace(SIMULATED, objective=objective_of(f"{MACHINE}:build:seed={seed}{knobs}"))


def run_seconds(problem: Problem, plan: Plan) -> float:
    """What a run takes."""
    found = evaluate_objective(problem, plan)
    assert found is not None
    return found


def searched(problem: Problem, seed: int) -> Plan:
    """By likely machines."""
    return MeasuredSearch(runs=RUNS).place(problem, seed=seed, budget=BUDGET).plan


def favourite(problem: Problem, seed: int) -> Plan:
    """The simulator's, of one run."""
    return Annealing().place(SIMULATED, seed=seed, budget=BUDGET).plan


def climbed(problem: Problem, seed: int) -> Plan:
    """By hill climbing on runs alone, from the simulator's favourite."""
    best = favourite(problem, seed)
    moves, least = Moves(SIMULATED, np.random.default_rng(seed)), run_seconds(problem, best)
    for _ in range(RUNS - 1):
        tried = Plan.of_units(SIMULATED, moves.propose(best.per_unit(SIMULATED)), order=best.order)
        if (seconds := run_seconds(problem, tried)) <= least:
            best, least = tried, seconds
    return best


def drawn(problem: Problem, seed: int) -> Plan:
    """The best run of some neighbours of the favourite that are simulated to be fast."""
    best, random = favourite(problem, seed), np.random.default_rng(seed)
    moves, simulator = Moves(SIMULATED, random), Simulator(SIMULATED)
    near = np.unique([moves.propose(moves.propose(best.per_unit(SIMULATED))) for _ in range(10 * RUNS)], axis=0)
    top = near[simulator.seconds(near).argsort()[: 3 * RUNS]]
    plans = [best, *(Plan.of_units(SIMULATED, each) for each in random.permutation(top)[: RUNS - 1])]
    return min(plans, key=lambda plan: run_seconds(problem, plan))


def calibrated(problem: Problem, seed: int) -> Plan:
    """The simulator's favourite once its costs are fitted to runs of random placements."""
    random, simulator = np.random.default_rng(seed), Simulator(SIMULATED)
    costs = LikelyCosts(SIMULATED, random)
    for placement in random_placements(SIMULATED, random, RUNS - 1):
        plan = Plan.of_units(SIMULATED, placement, order=simulator.priorities)
        costs.add(placement, simulator.priorities, run_seconds(problem, plan))
    likely = [costs.draw() for _ in range(10)][-1]
    found = Annealing().place(likely, seed=seed, budget=BUDGET).plan
    return replace(found, order=found.order or tuple(Simulator(likely).priorities.tolist()))


def seconds(by: Callable[[Problem, int], Plan], machines: int) -> Floats:
    """(machines,) what the plans that a method finds take, without noise."""
    hidden = [HiddenMachine(seed).problem(SIMULATED) for seed in range(machines)]
    plans = [by(real(seed), seed) for seed in range(machines)]
    return np.array([simulate(machine, plan).step_seconds for machine, plan in zip(hidden, plans, strict=True)])


def test_it_finds_faster_plans_than_the_simulator_prefers() -> None:
    ratios = seconds(favourite, 2) / seconds(searched, 2)
    assert (ratios > 1.05).all(), ratios


@pytest.mark.slow  # the plans of five searches on five machines
def test_it_finds_faster_plans_than_searches_without_a_model_of_costs_in_as_many_runs() -> None:
    found, methods = seconds(searched, 5), (favourite, climbed, drawn, calibrated)
    rivals = {by.__name__: float(np.exp(np.log(seconds(by, 5) / found).mean())) for by in methods}
    assert rivals["favourite"] > 1.2, rivals
    assert rivals["climbed"] > 1.05, rivals
    assert rivals["drawn"] > 1.05, rivals
    assert rivals["calibrated"] > 0.95, rivals  # as good on twenty other machines: it has the same model of costs


def test_the_answer_is_the_best_of_as_many_runs_as_are_given_and_always_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[Plan, float] = {}

    def counted(problem: Problem, plan: Plan) -> float:
        assert plan not in asked
        asked[plan] = run_seconds(problem, plan)
        return asked[plan]

    monkeypatch.setattr("placers.measured_search.evaluate_objective", counted)
    placer = MeasuredSearch(runs=6)
    found = placer.place(real(1), seed=2, budget=300)
    assert found.plan == min(asked, key=asked.__getitem__)
    assert found.curve[-1][1] == asked[found.plan]
    assert len(asked) == 6
    assert found.simulations <= 300
    asked.clear()
    assert placer.place(real(1), seed=2, budget=300) == found


def test_plans_that_fail_are_left_behind() -> None:
    first = (favourite(SIMULATED, 0).placement == 0).sum()
    fails = f",most={first - 1}"
    found = MeasuredSearch(runs=8).place(real(0, fails), seed=0, budget=1000)
    assert (found.plan.placement == 0).sum() < first
    one = Problem(GRAPH, toy_cluster(1, memory=1e9), objective=real(0, fails).objective)
    with pytest.raises(DoesNotFitError, match="none of 1 plans ran to its end"):
        MeasuredSearch(runs=3).place(one, seed=0, budget=20)


def test_knobs_are_checked_first() -> None:
    with pytest.raises(InputError, match="runs is 0; expected at least 1"):
        MeasuredSearch(runs=0)
    with pytest.raises(InputError, match="nowhere"):
        MeasuredSearch(policy="nowhere")


def test_costs_that_were_drawn_predict_plans_that_were_not_run() -> None:
    slow = costs_of(SIMULATED).op_seconds * [1.0, 2.0, 0.7]
    machine = replace(SIMULATED, op_seconds=slow)
    random, priorities = np.random.default_rng(0), Simulator(SIMULATED).priorities
    costs = LikelyCosts(SIMULATED, random)
    assert costs.draw() is SIMULATED
    placements = random_placements(SIMULATED, random, 40)
    orders = np.tile(priorities, (40, 1))
    taken = Simulator(machine).run_ordered(placements, orders).step_seconds
    for placement, each in zip(placements[:20], taken[:20], strict=True):
        costs.add(placement, priorities, float(each))
    likely = [costs.draw() for _ in range(10)][-1]
    errors, before = (
        np.abs(np.log(Simulator(each).run_ordered(placements[20:], orders[20:]).step_seconds / taken[20:])).mean()
        for each in (likely, SIMULATED)
    )
    assert before > 0.15
    assert errors < before / 3
