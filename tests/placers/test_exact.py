"""The exact placer against all placements, all other placers, and the lower bound."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.bounds import lower_bound
from envs.simulation.simulator import Simulator, simulate
from evaluation.commands.load_placer import classical_placers
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.exact import Exact, Solution
from tests.oracle.strategies import Case, cases
from tests.oracle.toys import Toy, random_graph, toy_cluster, toy_graph

MANY = 100_000  # simulations


def fastest(problem: Problem) -> float:
    """Seconds of the best of all placements that fit; infinite if none does."""
    devices = range(len(problem.cluster))
    placements = np.array(list(itertools.product(devices, repeat=problem.graph.num_units)))
    outcomes = Simulator(problem).run_batch(placements)
    return float(outcomes.step_seconds[outcomes.fits].min(initial=np.inf))


def proven(solution: Solution) -> bool:
    """Whether no placement that fits is faster."""
    return solution.bound_seconds >= (solution.step_seconds if solution.fits else np.inf)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Graphs of at most 12 ops on clusters of every sort, some of them short of memory."""
    ops, devices = draw(st.sampled_from([(12, 2), (10, 2), (7, 3), (5, 4), (1, 2)]))
    cluster = toy_cluster(
        devices, memory=draw(st.sampled_from([8.0, 15.0, 1e6])), launch=draw(st.sampled_from([0.0, 0.5])),
        shared_out=draw(st.booleans()), latency=draw(st.sampled_from([0.0, 0.3])),
        gap=draw(st.sampled_from([0.0, 0.25])), multicast=draw(st.booleans()),
    )  # fmt: skip
    graph = random_graph(ops, draw(st.integers(0, 99)))
    if draw(st.booleans()):
        own = np.full(len(graph.edges), np.nan)
        own[::3] = 2.0
        graph = replace(graph, edge_bytes=own, transfer_bytes=graph.output_bytes[::-1])
    return Problem(graph, draw(st.sampled_from([cluster, cluster, cluster.with_free_links()])))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(problems())
def test_constraint_programming_meets_brute_force_and_no_placer_beats_it(problem: Problem) -> None:
    best = fastest(problem)
    count = len(problem.cluster) ** problem.graph.num_units
    by_constraints = Exact(work=2.0).solve(problem, budget=min(300, count - 1))
    if np.isfinite(best):
        assert lower_bound(problem) <= by_constraints.bound_seconds * (1 + 1e-9)
        assert by_constraints.bound_seconds <= best
        assert best <= by_constraints.step_seconds or not by_constraints.fits
        if proven(by_constraints):
            assert by_constraints.step_seconds == best
        assert lower_bound(problem) <= best * (1 + 1e-9)
    else:
        assert not by_constraints.fits
        assert not proven(by_constraints) or by_constraints.bound_seconds == np.inf
    enumerated = Exact().solve(problem, budget=count)
    assert (enumerated.step_seconds if enumerated.fits else np.inf) == best
    assert proven(enumerated) == np.isfinite(best) or not enumerated.fits
    for name in (*classical_placers(), "kahip", "max_load_dp"):
        timeline = simulate(problem, by_name.build("placers", name).place(problem, budget=50).plan)
        assert not timeline.fits or timeline.step_seconds >= best


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(plans=8))
def test_the_bound_of_all_schedules_holds_for_every_run(case: Case) -> None:
    from placers.solvers.schedules import Schedules

    simulator = Simulator(case.problem, order=case.order)
    outcomes = simulator.run_batch(case.placements)
    if not outcomes.fits.any():
        return
    fitting = float(outcomes.step_seconds[outcomes.fits].min())
    schedules = Schedules(case.problem, simulator.costs.op_seconds, max(fitting, 1e-9) * 1.5)
    assert schedules.propose(2.0).bound_seconds <= fitting * (1 + 1e-9)


def test_the_known_optimum_is_found_and_proven(four_ops_two_devices: Toy) -> None:
    toy = four_ops_two_devices
    for budget in (15, 16):
        solution = Exact().solve(toy.problem, budget=budget)
        assert solution.step_seconds == toy.best_seconds
        assert proven(solution)


def test_budget_and_limits_are_kept() -> None:
    problem = Problem(random_graph(30, 0), toy_cluster(2, memory=1e6))
    assert Exact(work=1.0).place(problem, budget=3).simulations <= 3
    with pytest.raises(InputError, match="has 30 ops, more than the 20 that exact takes"):
        Exact(ops=20).place(problem)
    with pytest.raises(InputError, match="work is 0"):
        Exact(work=0)


def test_what_fits_nowhere_is_proven_to() -> None:
    problem = Problem(toy_graph([1, 1], [(0, 1)], weights=[999], weight_uses=[(0, 0)]), toy_cluster(2))
    solution = Exact().solve(problem, budget=3)
    assert not solution.fits
    assert solution.bound_seconds == np.inf
