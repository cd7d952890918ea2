"""No start ends a search: what refuses or fails is left out, and named."""

from dataclasses import dataclass

import numpy as np
import pytest

from envs.placer_result import PlacerResult
from graphs.cluster import Cluster, Device
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.annealing import Annealing
from placers.contract.placer import Placer
from placers.genetic import Genetic
from placers.max_load_dp import MaxLoadDP
from placers.search import starts as module
from placers.search.starts import cheap_placers, starts
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
    """Let searches begin with what these say."""
    monkeypatch.setattr(module, "cheap_placers", lambda: placers)


@pytest.mark.parametrize("count", [13, 70])
def test_max_load_dp_names_itself_and_the_remedy(count: int) -> None:
    with pytest.raises(InputError) as refused:
        MaxLoadDP().place(unlike(count))
    assert str(refused.value) == SENTENCE.format(count, 2**count)


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)
@pytest.mark.parametrize("budget", [0, 1, 4, 60])
def test_a_start_that_refuses_is_left_out_and_named(search: Placer, budget: int) -> None:
    problem = unlike(13)
    result = search.place(problem, budget=budget)
    result.plan.check(problem)
    assert result.simulations == budget
    left_out = f"start max_load_dp:ideals=0 was left out: {SENTENCE.format(13, 2**13)}"
    assert result.notes == ((left_out,) if budget >= 4 else ())


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)
def test_a_start_that_fails_is_left_out_and_named(search: Placer, monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, Failing(ZeroDivisionError("by zero")), *cheap_placers(), Failing(KeyError()))
    result = search.place(Problem(random_graph(9, seed=0), toy_cluster(2)), budget=50)
    assert result.notes == (
        "start failing was left out: ZeroDivisionError: by zero", "start failing was left out: KeyError"
    )  # fmt: skip
    assert result.simulations == 50


def test_there_are_as_many_starts_as_simulations_though_some_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(random_graph(9, seed=0), toy_cluster(2))
    others = starts(problem, 2, seed=0).placements
    give(monkeypatch, Failing(InputError("no")), *cheap_placers())
    assert (starts(problem, 2, seed=0).placements == others).all()
    assert starts(problem, 2, seed=0).notes == ("start failing was left out: no",)


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)
@pytest.mark.parametrize("budget", [0, 1, 30])
def test_without_any_start_all_begins_on_the_fastest_device(
    search: Placer, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, Failing(InputError("no")))
    problem = unlike(3)
    assert starts(problem, budget, seed=0).placements.tolist() == [[2] * 6]
    assert search.place(problem, budget=budget).simulations == budget


def test_a_failing_policy_is_left_out_too() -> None:
    found = starts(unlike(3), 3, seed=0, learned=Failing(InputError("the policy is for 2 devices")))
    assert found.notes == ("start failing was left out: the policy is for 2 devices",)
    assert len(found.placements) == 3


def test_ctrl_c_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, Failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        Annealing().place(unlike(3), budget=5)
