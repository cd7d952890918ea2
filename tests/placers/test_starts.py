"""No start ends a search: what refuses or fails is left out, and named."""

import itertools
import sys
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from graphs.cluster import Cluster, Device
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import FIFO, IDEAL, RUNTIMES
from placers.annealing import Annealing
from placers.contract.placer import Placer
from placers.genetic import Genetic
from placers.max_load_dp import MaxLoadDP
from placers.search import starts as module
from placers.search.levels import Levels, levels_of
from placers.search.starts import (
    ALWAYS,
    LEAST_SECONDS,
    LEAST_TIME,
    SIMULATION,
    STARTS,
    TIME_SHARE,
    PowerLaw,
    affordable,
    baseline,
    cheap_placers,
    start_levels,
    starts,
)  # fmt: skip
from tests.oracle.toys import random_graph, toy_cluster

SENTENCE = (
    "cluster 'unlike' has {0} kinds of devices; max_load_dp looks at every number of each, at most 4,096 combinations, "
    "not {1:,}: take another placer, such as annealing, or a cluster of fewer kinds"
)
SEARCHES = (Annealing(), Genetic(population=20))


def unlike(count: int) -> Problem:
    """Six ops on devices that all differ in speed."""
    devices = tuple(Device(f"gpu:{i}", "gpu", 1.0 + i, 1.0 + i, 1e9) for i in range(count))
    links = np.ones((count, count))
    return Problem(
        random_graph(6, seed=0), Cluster("unlike", devices, links, links, np.arange(count**2).reshape(count, -1))
    )


@dataclass(frozen=True)
class Failing:
    """A placer that raises."""

    error: BaseException
    name: str = "failing"

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        raise self.error


def give(monkeypatch: pytest.MonkeyPatch, *placers: Placer) -> None:
    """Let searches begin with what these say, however long they take."""
    monkeypatch.setattr(module, "affordable", lambda *_: [(placer, 0) for placer in placers])


@pytest.mark.parametrize("count", [13, 70])
def test_max_load_dp_names_itself_and_the_remedy(count: int) -> None:
    with pytest.raises(InputError) as refused:
        MaxLoadDP().place(unlike(count))
    assert str(refused.value) == SENTENCE.format(count, 2**count)


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)
@pytest.mark.parametrize("budget", [0, 1, 7, 60])
def test_a_start_that_refuses_is_left_out_and_named(
    search: Placer, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = zip(STARTS, cheap_placers(), strict=True)
    give(monkeypatch, *(placer for start, placer in known if "kahip" not in start.spec))  # it may not be installed
    problem = unlike(13)
    result = search.place(problem, budget=budget)
    result.plan.check(problem)
    assert result.simulations == budget
    left_out = f"start max_load_dp:ideals=0 was left out: {SENTENCE.format(13, 2**13)}"
    assert result.notes == ((left_out,) if budget >= 7 else ())


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)
def test_a_start_that_fails_is_left_out_and_named(search: Placer, monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, Failing(ZeroDivisionError("by zero")), *cheap_placers()[:3], Failing(KeyError()))
    result = search.place(Problem(random_graph(9, seed=0), toy_cluster(2)), budget=50)
    assert result.notes == (
        "start failing was left out: ZeroDivisionError: by zero", "start failing was left out: KeyError"
    )  # fmt: skip
    assert result.simulations == 50


def test_there_are_as_many_starts_as_simulations_though_some_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = levels_of(Problem(random_graph(9, seed=0), toy_cluster(2)))
    give(monkeypatch, *cheap_placers())
    others = starts(levels, 2, seed=0).placements
    give(monkeypatch, Failing(InputError("no")), *cheap_placers())
    assert (starts(levels, 2, seed=0).placements == others).all()
    assert starts(levels, 2, seed=0).notes == ("start failing was left out: no",)


@dataclass(frozen=True)
class Whole:
    """A placer whose plans are no op placements."""

    name: str = "whole"

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        return PlacerResult(Plan(((0, 1),) * len(problem.graph)), self.name, seed)


def test_a_search_does_not_begin_at_a_whole_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, Whole(), *cheap_placers()[:1])
    found = starts((Problem(random_graph(6, seed=0), toy_cluster(2)),), 2, seed=0)
    why = "a search takes op placements only, and this plan places ops on 2 devices each; place with --plans placement"
    assert found.notes == (f"start whole was left out: {why}",)
    assert len(found.placements) == 1


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)
@pytest.mark.parametrize("budget", [0, 1, 30])
def test_without_any_start_all_begins_on_the_fastest_device(
    search: Placer, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, Failing(InputError("no")))
    problem = unlike(3)
    assert starts((problem,), budget, seed=0).placements.tolist() == [[2] * 6]
    assert search.place(problem, budget=budget).simulations == budget


def test_a_failing_policy_is_left_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, *cheap_placers()[:3])
    found = starts((unlike(3),), 3, seed=0, learned=Failing(InputError("the policy is for 2 devices")))
    assert found.notes == ("start failing was left out: the policy is for 2 devices",)
    assert len(found.placements) == 3


def test_ctrl_c_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, Failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        Annealing().place(unlike(3), budget=5)


@given(st.integers(1, 90), st.integers(1, 5), st.integers(0, 10**6), st.floats(0, 1) | st.just(np.inf))
def test_starts_stay_within_their_share_of_the_time(ops: int, devices: int, budget: int, seconds: float) -> None:
    problem = Problem(random_graph(ops, seed=0), toy_cluster(devices))
    levels = levels_of(problem)
    chosen, every = affordable(levels, budget, seconds), asked_in_turn(levels)
    assert chosen[0] == (cheap_placers()[0], start_levels(levels)[0])
    simulations = max(LEAST_TIME, TIME_SHARE * budget) * SIMULATION.seconds(problem)
    within = min(max(LEAST_SECONDS, simulations), TIME_SHARE * seconds)
    always = {next(each for each in every if each[0] == cheap_placers()[index]) for index in ALWAYS_AT}
    assert len(always) == len(ALWAYS)
    assert always <= {*chosen}
    left = within - sum(every[each] for each in chosen if each not in always)
    assert left >= 0 or {*chosen[1:]} == always
    left -= sum(every[each] for each in always)
    assert all(each in chosen or every[each] > left for each in every)  # what is left out would be too much
    assert chosen == [each for each in every if each in chosen]  # in their order


ALWAYS_AT = [index for index, start in enumerate(STARTS) if start.spec in ALWAYS]


def asked_in_turn(levels: Levels) -> dict[tuple[Placer, int], float]:
    """Every placer at each level at which it may be asked, in their order, and the seconds that it is to take."""
    finer, coarser = start_levels(levels)
    every = [(0, finer)]
    every += [(index, 0 if start.schedules else coarser) for index, start in enumerate(STARTS)]
    every += [(index, coarser if start.schedules else finer) for index, start in enumerate(STARTS)]
    return {
        (cheap_placers()[index], level): STARTS[index].estimate.seconds(levels[level]) for index, level in every
    }  # fmt: skip


def test_a_search_with_time_has_all_starts_and_one_without_what_anyone_would_try() -> None:
    problem = Problem(random_graph(70, seed=0), toy_cluster(3))
    first, one_device, heft, expert = (
        next(each for each in cheap_placers() if each.name == name)
        for name in ("metis:seeds=24", "single_device", "heft", "human_expert")
    )
    for levels in ((problem,), levels_of(problem)):
        at = len(levels) - 1
        assert affordable(levels, 10**9, np.inf) == list(asked_in_turn(levels))
        assert len(asked_in_turn(levels)) == len(STARTS) * len(levels)
        assert affordable(levels, 10**9, 1e-9) == [(first, 0), (one_device, at), (heft, 0), (expert, at)]


def test_all_starts_of_small_problems_join_whatever_the_budget() -> None:
    levels = levels_of(Problem(random_graph(30, seed=0), toy_cluster(2)))
    assert LEAST_TIME * SIMULATION.seconds(levels[0]) < 1e-3 < LEAST_SECONDS
    assert {placer for placer, _ in affordable(levels, 0, np.inf)} == {*cheap_placers()}


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)
def test_no_search_of_a_small_problem_is_behind_a_list_scheduler(search: Placer) -> None:
    schedulers = [placer for start, placer in zip(STARTS, cheap_placers(), strict=True) if start.schedules]
    assert len(schedulers) == 4
    for seed in range(6):
        problem = Problem(random_graph(40, seed=seed), toy_cluster(4, latency=2.0), runtime=IDEAL)
        found = simulate(problem, search.place(problem, budget=100).plan).step_seconds
        least = min(simulate(problem, placer.place(problem).plan).step_seconds for placer in schedulers)
        assert found <= least * (1 + 1e-9)


def test_starts_are_made_for_hundreds_of_units_and_for_a_quarter_of_these(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = levels_of(Problem(random_graph(300, seed=0), toy_cluster(3)))
    assert [len(level.units) for level in levels] == [300, 75, 18]
    assert [start_levels(levels[:count]) for count in (1, 2, 3)] == [(0, 0), (0, 1), (0, 1)]
    monkeypatch.setattr(module, "MOST_UNITS", 100)
    assert [start_levels(levels[:count]) for count in (1, 2, 3)] == [(0, 0), (1, 1), (1, 2)]
    asked = affordable(levels, 10**6, np.inf)
    own = {placer for placer, level in asked if level == 0}
    assert own == {placer for start, placer in zip(STARTS, cheap_placers(), strict=True) if start.schedules}
    monkeypatch.setattr(module, "affordable", lambda *_: [each for each in asked if each[1] > 0])
    of_metis, *found = starts(levels, 10**6, seed=0).placements
    assert (of_metis == baseline(levels[0], 0).placements[0]).all()
    units = levels[1].graph.units[levels[0].units.first_op]
    together = [(units == unit) for unit in range(75)]
    assert all(len(set(placement[tied])) == 1 for placement in found for tied in together)


def test_an_estimate_is_a_product_of_powers() -> None:
    problem = Problem(random_graph(16, seed=0), toy_cluster(4))
    assert problem.graph.num_units == 16
    assert PowerLaw(3.0, 0.5, 0.25, 2.0).seconds(problem) == pytest.approx(3.0 * 4.0 * 2.0 * 16.0)


def test_a_start_whose_package_is_missing_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kahip", None)
    give(monkeypatch, *cheap_placers())
    found = starts((Problem(random_graph(9, seed=0), toy_cluster(2)),), 50, seed=0)
    assert len(found.placements) == len(STARTS) - 1
    (note,) = found.notes
    assert note.startswith("start kahip:seeds=1 was left out: placer kahip needs the package kahip: pip install")


@dataclass(frozen=True)
class Ordering:
    """A placer that spreads ops over devices, and gives a random order."""

    seed: int
    name: str = "ordering"

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        order = np.random.default_rng(self.seed).random(len(problem.graph))
        return PlacerResult.of_units(problem, np.arange(len(problem.units)) % 2, self.name, seed, order=order)


def test_a_search_begins_under_the_better_of_the_rule_and_the_placers_own_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = 0
    for seed in range(20):
        problem = Problem(random_graph(12, seed), toy_cluster(2, memory=1e9), runtime=IDEAL.with_knobs(order="program"))
        placer = Ordering(seed)
        give(monkeypatch, placer)
        plan = placer.place(problem).plan
        by_rule, by_own = (simulate(problem, each).step_seconds for each in (replace(plan, order=None), plan))
        found = Annealing().place(problem, budget=2).plan
        assert simulate(problem, found).step_seconds == min(by_rule, by_own)
        assert found == (plan if by_own < by_rule else replace(plan, order=None))
        own += found == plan
        for fixed in (Annealing(order=False).place(problem, budget=1), Annealing().place(problem, budget=1)):
            assert fixed.plan == replace(plan, order=None)
    assert own > 0
    fifo = replace(problem, runtime=RUNTIMES[FIFO.name])
    assert Annealing().place(fifo, budget=50).plan.order is None


@cache
def large(units: int) -> tuple[Problem, float]:
    """A problem of many units, and the seconds of METIS's plan."""
    problem = Problem(random_graph(units, seed=1), toy_cluster(4, latency=2.0))
    return problem, simulate(problem, by_name.build("placers", "metis").place(problem, seed=3).plan).step_seconds


@pytest.mark.parametrize("spec", ["annealing", "genetic", "hill_climbing", "default", "annealing:policy=default"])
@pytest.mark.parametrize(("units", "budget"), [(600, 2), (2000, 3)])
def test_nothing_found_for_many_units_is_behind_metis(spec: str, units: int, budget: int) -> None:
    problem, of_metis = large(units)
    found = by_name.build("placers", spec).place(problem, seed=3, budget=budget)
    assert found.simulations == budget
    assert simulate(problem, found.plan).step_seconds <= of_metis * (1 + 1e-9)


def test_a_search_says_that_metis_would_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, ticks = Problem(random_graph(600, seed=1), toy_cluster(3)), itertools.count()
    monkeypatch.setattr("placers.search.starts.time.process_time", lambda: float(next(ticks)))
    of_metis = by_name.build("placers", "metis").place(problem, seed=3).plan
    in_time, late = (baseline(problem, 3, seconds) for seconds in (100.0, 99.0))  # 50 runs of a second each
    assert (in_time.placements[:, problem.graph.units] == of_metis.placement).all()
    assert (len(in_time.placements), in_time.notes) == (1, ())
    assert late.placements.shape == (0, len(problem.units))
    assert late.notes == (
        "start metis was left out: its plan takes about 50 s, and 50 s are left to it, so that the plan found may be "
        "behind it; give 1e+02 s in all",
    )
    few = Problem(random_graph(60, seed=1), toy_cluster(3))
    assert (len(baseline(few, 3).placements), baseline(few, 3, 1e-9).notes) == (0, ())


@dataclass(frozen=True)
class Slow(Whole):
    """A placer that takes ten seconds at least."""

    def least_seconds(self, problem: Problem) -> float:
        return 10.0


def test_a_policy_that_takes_too_long_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "in_time", lambda *_: [(cheap_placers()[0], 0)])
    levels = levels_of(Problem(random_graph(9, seed=0), toy_cluster(2)))
    for seconds, said in ((19.0, "its plan takes about 10 s, and 9.5 s are left"), (21.0, "a search takes op")):
        found = starts(levels, 50, seed=0, learned=Slow(), seconds=seconds)
        assert (len(found.placements), len(found.notes)) == (1, 1)
        assert said in found.notes[0]


@pytest.mark.parametrize("search", SEARCHES)
@given(seed=st.integers(0, 200), budget=st.integers(2, 8))
def test_no_search_is_behind_one_device(search: Placer, seed: int, budget: int) -> None:
    problem = Problem(random_graph(8, seed=seed), toy_cluster(3, latency=2.0))
    found = simulate(problem, search.place(problem, seed=seed, budget=budget).plan).step_seconds
    assert found <= simulate(problem, Plan.of([0] * len(problem.graph))).step_seconds * (1 + 1e-9)
