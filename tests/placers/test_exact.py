"""The exact placer against all placements, all other placers, and the lower bound."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.costs.costs import costs_of
from envs.plans.plan import Plan
from envs.simulation.bounds import lower_bound
from envs.simulation.simulator import Simulator, simulate
from evaluation.commands.load_placer import classical_placers
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem, objective_of
from graphs.runtime import IDEAL
from placers.exact import PRECISION, Exact, Solution
from placers.solvers.placement_bounds import placement_bounds
from tests.drawn import examples
from tests.oracle.strategies import Case, cases
from tests.oracle.toys import Toy, random_graph, toy_cluster, toy_graph


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


@settings(max_examples=examples(25, 4), deadline=None, suppress_health_check=list(HealthCheck))
@given(problems())
def test_constraint_programming_meets_brute_force_and_no_placer_beats_it(problem: Problem) -> None:
    best = fastest(problem)
    count = len(problem.cluster) ** problem.graph.num_units
    by_constraints = Exact(work=1.0, order="rule").solve(problem, budget=min(100, count - 1))
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
    enumerated = Exact(order="rule").solve(problem, budget=count)
    assert (enumerated.step_seconds if enumerated.fits else np.inf) == best
    assert proven(enumerated) == np.isfinite(best) or not enumerated.fits
    free = Exact(work=0.1).solve(problem, budget=50)
    assert free.bound_seconds <= min(best, free.step_seconds) * (1 + 1e-9) or not free.fits
    for name in (*classical_placers(), "kahip", "max_load_dp"):
        try:
            plan = by_name.build("placers", name).place(problem, budget=50).plan
        except InputError:  # of data_parallel, where ops are bound to devices
            continue
        if not plan.is_placement:
            continue
        assert not (timeline := simulate(problem, plan)).fits or timeline.step_seconds >= free.bound_seconds * (
            1 - 1e-9
        )
        by_rule = simulate(problem, replace(plan, order=""))
        assert not by_rule.fits or by_rule.step_seconds >= best


@settings(max_examples=examples(25, 8), deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(max_ops=5, max_devices=2))
def test_of_all_placements_with_all_linear_orders_none_beats_the_bound(case: Case) -> None:
    problem, best = case.problem, np.inf
    placements = np.array(list(itertools.product(range(len(problem.cluster)), repeat=problem.graph.num_units)))
    for order in itertools.permutations(range(len(problem.graph))):
        outcomes = Simulator(problem, order=order).run_batch(placements)
        best = min(best, float(outcomes.step_seconds[outcomes.fits].min(initial=np.inf)))
    for work, budget in ((1.0, 100), (0.05, 3)):
        solution = Exact(work=work).solve(problem, budget=budget)
        assert solution.bound_seconds <= best * (1 + 1e-9)
        assert solution.simulations <= budget
        plan = Plan.of_units(problem, solution.placement, order=solution.order)
        timeline = simulate(problem, plan)
        assert timeline.fits == solution.fits
        if solution.fits:
            assert timeline.step_seconds == solution.step_seconds
            assert solution.bound_seconds <= solution.step_seconds
        if solution.beats(solution.bound_seconds):
            assert solution.step_seconds <= best * (1 + 2 * PRECISION)


@settings(max_examples=examples(100, 12), deadline=None)
@given(cases(plans=8))
def test_no_order_beats_the_bound_of_a_placement(case: Case) -> None:
    seconds = Simulator(case.problem, order=case.order).seconds(case.placements)
    bounds = placement_bounds(case.problem, case.op_seconds, case.placements)
    assert (bounds <= seconds * (1 + 1e-9)).all()


def test_the_bound_of_a_placement_is_its_longest_path_or_what_a_device_does(four_ops_two_devices: Toy) -> None:
    """Apart, a and b take 4 s, what they send 1 s, and d 1 s; together, all four take 8 s, one after another."""
    problem = four_ops_two_devices.problem
    placements = np.array([four_ops_two_devices.best_placement, (0, 0, 0, 0)])
    assert placement_bounds(problem, costs_of(problem).op_seconds, placements).tolist() == [6, 8]


@pytest.mark.parametrize("rule", ["fifo", "longest_path", "program"])
def test_with_the_order_free_the_best_plan_is_faster_than_under_any_rule(rule: str) -> None:
    """a and b share a device, with c; d runs on the other, two seconds after b. All rules run a first, then b.

    a |b |c            and d from 4 to 10, but  b |a |c           and d from 3 to 9
    """
    graph = toy_graph([1, 1, 6.5, 6], [(0, 2), (1, 3)], output_bytes=[3, 2, 1, 1], group=[0, 0, -1, -1])
    problem = Problem(graph, toy_cluster(2), runtime=IDEAL.with_knobs(order=rule))
    by_rule, free = Exact(order="rule").solve(problem, budget=8), Exact().solve(problem, budget=8)
    assert (by_rule.step_seconds, free.step_seconds) == (10, 9)
    assert all(each.beats(each.bound_seconds) for each in (by_rule, free))
    result = Exact().place(problem, budget=8)
    assert simulate(problem, result.plan).step_seconds == 9
    with pytest.raises(InputError, match="unknown order 'fastest'"):
        Exact(order="fastest")


@settings(max_examples=examples(60, 9), deadline=None, suppress_health_check=list(HealthCheck))
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
    assert Exact(work=0.1).place(problem, budget=3).simulations <= 3
    with pytest.raises(InputError, match="has 30 ops, more than the 20 that exact takes"):
        Exact(ops=20).place(problem)
    with pytest.raises(InputError, match="work is 0"):
        Exact(work=0)


def test_half_of_the_simulations_are_of_placements_under_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(random_graph(10, 0), toy_cluster(2, memory=1e6))
    tried = list[int]()
    try_all = Solution.try_all

    def counting(self: Solution, placements: Ints, order: Floats | None = None) -> None:
        tried.append(len(placements))
        try_all(self, placements, order)

    monkeypatch.setattr(Solution, "try_all", counting)
    Exact(work=0.1).solve(problem, budget=30)
    assert tried[:2] == [1, 15]  # HEFT's, and those of the least bounds
    assert sum(tried) <= 30


def test_what_fits_nowhere_is_proven_to() -> None:
    problem = Problem(toy_graph([1, 1], [(0, 1)], weights=[999], weight_uses=[(0, 0)]), toy_cluster(2))
    solution = Exact().solve(problem, budget=3)
    assert not solution.fits
    assert solution.bound_seconds == np.inf


def test_for_throughput_it_finds_the_plan_with_the_fastest_step(four_ops_two_devices: Toy) -> None:
    problem = four_ops_two_devices.problem
    of_rate = replace(problem, objective=objective_of("throughput"))
    found = Exact().place(of_rate, budget=100)
    assert found.plan == Exact().place(problem, budget=100).plan
    assert simulate(problem, found.plan).step_seconds == four_ops_two_devices.best_seconds
    with pytest.raises(InputError, match="exact knows step times only, and the objective is 'latency'"):
        Exact().place(replace(problem, objective=objective_of("latency")), budget=100)
