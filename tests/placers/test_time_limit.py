"""Placers that can stop themselves do when their processor seconds are over; the clock is a false one."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from envs.simulation.simulator import simulate
from evaluation.commands import run_verbs
from evaluation.comparing.compare import compare
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.annealing import Annealing
from placers.contract.time_limit import UNLIMITED, Seconds
from placers.learned.rounds import ENCODING, FIRST, GROWTH, rounds
from placers.made_for import MadeFor
from placers.random import BATCH
from placers.search.levels import levels_of
from placers.search.starts import STARTS, affordable, in_time, starts
from tests.oracle.toys import random_graph, toy_cluster
from tests.placers.stand_in import stand_in

PROBLEM = Problem(random_graph(30, seed=0), toy_cluster(3, memory=1e9))
SEARCHES = ("annealing", "genetic:population=20", "hill_climbing")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still at its only number."""
    now = [0.0]
    monkeypatch.setattr("placers.learned.rounds.time.process_time", lambda: now[0])
    return now


@pytest.mark.parametrize("each", [1e-3, 2e-3, 0.1])
@pytest.mark.parametrize("seconds", [0.02, 0.3, 3.0])
def test_rounds_fill_the_time_where_samples_take_what_is_expected(
    seconds: float, each: float, clock: list[float]
) -> None:
    counts = []
    for count in rounds(seconds, UNLIMITED):
        counts.append(count)
        clock[0] += each * (ENCODING + count)
    assert counts[0] == FIRST
    assert clock[0] <= max(seconds * (1 + 1e-9), each * (ENCODING + FIRST))
    assert all(after <= GROWTH * before for before, after in itertools.pairwise(counts))
    assert clock[0] + each * (ENCODING + 1) > seconds  # there was no time for another round


@pytest.mark.parametrize("seconds", [0.01, 1.4, 2.0, 5.0])
def test_rounds_of_samples_that_are_expected_to_take_long_keep_the_time(seconds: float, clock: list[float]) -> None:
    for count in rounds(seconds, UNLIMITED, expected=0.1):
        clock[0] += 0.1 * (ENCODING + count)
    assert clock[0] <= max(seconds, 0.1 * (ENCODING + 1)) + 1e-9


@pytest.mark.parametrize("most", [1, 3, FIRST, 100])
def test_rounds_draw_no_more_than_is_allowed(most: int, clock: list[float]) -> None:
    assert list(rounds(math.inf, most)) == [most]
    assert sum(rounds(1.0, most)) == most  # time stands still
    assert clock == [0.0]


@pytest.mark.parametrize("spec", SEARCHES)
def test_a_search_stops_when_its_time_is_up(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    limited, budget = Seconds(20.0).given(by_name.build("placers", spec))
    assert limited.name == by_name.build("placers", limited.name).name
    monkeypatch.setattr("placers.search.search.time.process_time", lambda: float(next(ticks)))
    found = limited.place(PROBLEM, budget=budget)
    assert 0 < found.simulations < UNLIMITED
    assert 20 <= next(ticks) <= 23  # it looks at the clock before each step


def test_a_policy_draws_samples_until_its_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = by_name.build("placers", f"sequential:checkpoint={stand_in(tmp_path / 'run')}")
    limited, budget = Seconds(0.5).given(policy)
    assert limited.name.endswith("seconds=0.5")
    monkeypatch.setattr("placers.learned.learned_placer.rounds", lambda seconds, most, _: iter([8, 32, 5][:most]))
    found = limited.place(PROBLEM, budget=budget)
    assert found.simulations == 45
    first = policy.place(PROBLEM, budget=8)
    assert simulate(PROBLEM, found.plan).step_seconds <= simulate(PROBLEM, first.plan).step_seconds


@pytest.mark.parametrize("spec", ["heft", "made_for:placer=heft"])
def test_what_cannot_stop_is_as_it_was(spec: str) -> None:
    placer = by_name.build("placers", spec)
    assert Seconds(1.0).given(placer) == (placer, 1)


def test_a_plan_made_for_another_runtime_is_made_within_the_time() -> None:
    limited, budget = Seconds(0.5).given(by_name.build("placers", "made_for:placer=annealing"))
    assert isinstance(limited, MadeFor)
    assert limited.planning == Annealing(seconds=0.5)
    assert budget == UNLIMITED


def test_draws_at_random_stop_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    limited, budget = Seconds(3.0).given(by_name.build("placers", "random"))
    monkeypatch.setattr("placers.random.time.process_time", lambda: float(next(ticks)))
    assert limited.place(PROBLEM, budget=budget).simulations == 2 * BATCH  # after one second, and after two
    with pytest.raises(InputError, match=r"random: seconds is 0\.0; expected a number > 0"):
        by_name.build("placers", "random:seconds=0")


def test_a_comparison_gives_each_the_same_seconds() -> None:
    found = compare(["annealing", "heft"], [PROBLEM], budget=Seconds(0.05), quiet=True)
    by_placer = {record.placer: record for record in found.records}
    assert set(by_placer) == {"annealing:seconds=0.05", "heft"}
    assert by_placer["annealing:seconds=0.05"].budget == UNLIMITED
    assert by_placer["annealing:seconds=0.05"].simulations > 16
    assert by_placer["heft"].budget == 1
    for value in (-1.0, math.inf, math.nan):
        with pytest.raises(InputError, match=rf"seconds is {value}; expected a finite number > 0"):
            Seconds(value)


@pytest.mark.parametrize("spec", SEARCHES)
def test_a_search_says_that_no_time_was_left(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr("placers.search.search.time.process_time", lambda: float(next(ticks)))
    result = by_name.build("placers", spec).within(0.5).place(PROBLEM, budget=UNLIMITED)
    assert result.notes[-1].endswith(" s of 0.5 s")


def test_starts_keep_to_their_share_of_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    levels, every = levels_of(PROBLEM), affordable(levels_of(PROBLEM), UNLIMITED)
    monkeypatch.setattr("placers.search.starts.time.process_time", lambda: now[0])
    assert {*in_time(levels, 1e9)} == {*every}
    assert [*in_time(levels, 0.0)] == []
    for _ in in_time(levels, 0.5):
        now[0] += 0.2
    assert 0.2 <= now[0] < 0.7
    assert len(starts(levels, UNLIMITED, 0, seconds=1e-9).placements) == 1


def test_within_seconds_starts_that_take_least_come_first_and_tuned_metis_last() -> None:
    levels, estimates = levels_of(PROBLEM), {start.spec: start.estimate for start in STARTS}
    asked = [*in_time(levels, 1e9)]
    *needed, _ = [estimates[placer.name].seconds(levels[level]) for placer, level in asked]
    assert needed == sorted(needed)
    assert asked[-1][0].name == "metis:seeds=24"


@pytest.mark.parametrize("verb", [run_verbs.compare, run_verbs.evaluate])
def test_a_budget_and_seconds_are_not_both_obeyed(verb: Callable[..., object]) -> None:
    with pytest.raises(InputError, match=r"give a budget \(5\) or seconds \(0.1\), and not both"):
        verb(budget=5, seconds=0.1)
