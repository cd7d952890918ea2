"""What all searches promise: a budget, a curve, and that one that was stopped ends where it would have ended."""

import _thread
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from envs.simulation.simulator import simulate
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.problem import Problem, objective_of
from graphs.runtime import FIFO, IDEAL, RUNTIMES
from placers.search import local_search
from placers.search.search import Search
from tests.oracle.toys import Toy, random_graph, toy_cluster

OF_ORDERS = ("annealing", "genetic", "hill_climbing")  # which find one in few simulations
SEARCHES = (*OF_ORDERS, "neural_lns")
PROBLEM = Problem(random_graph(30, seed=1), toy_cluster(3, memory=1e9))
ORDERED = Problem(random_graph(30, seed=6), toy_cluster(3, memory=1e9))
SEEDS = {"annealing": 0, "genetic": 0, "hill_climbing": 1, "neural_lns": 0}  # with which they find a better order there
BUDGET = 300


@pytest.mark.parametrize("name", [*SEARCHES, "random"])
def test_a_curve_falls_to_the_step_time_of_the_plan(name: str) -> None:
    result = by_name.build("placers", name).place(PROBLEM, seed=3, budget=BUDGET)
    counts, seconds = zip(*result.curve, strict=True)
    assert list(counts) == sorted(set(counts))
    assert counts[-1] <= result.simulations == BUDGET
    assert (np.diff(seconds) < 0).all()
    assert seconds[-1] == simulate(PROBLEM, result.plan).step_seconds


@pytest.mark.parametrize("name", SEARCHES)
def test_one_that_was_stopped_ends_where_it_would_have_ended(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = f"{name}:file={tmp_path / 'search.npz'}"
    whole = by_name.build("placers", name).place(ORDERED, seed=SEEDS[name], budget=BUDGET)

    monkeypatch.setattr(local_search, "OPS_PER_CALL", 30 * 7)
    searching = type(by_name.build("placers", name).begin(ORDERED, SEEDS[name], BUDGET))
    take_step = searching.step

    def interrupted(self: Search, elapsed: float, left: int) -> None:
        take_step(self, elapsed, left)
        if 100 <= self.evaluations.simulations < 200:
            _thread.interrupt_main()

    with monkeypatch.context() as patched:
        patched.setattr(searching, "step", interrupted)
        with pytest.raises(KeyboardInterrupt, match=rf"stopped after \d+ of {BUDGET} simulations; saved in .*search"):
            by_name.build("placers", spec).place(ORDERED, seed=SEEDS[name], budget=BUDGET)
    resumed = by_name.build("placers", spec).place(ORDERED, seed=SEEDS[name], budget=BUDGET)
    assert (resumed.plan, resumed.simulations, resumed.curve) == (whole.plan, whole.simulations, whole.curve)
    assert (name in OF_ORDERS) <= (isinstance(whole.plan.order, tuple))


@pytest.mark.parametrize("name", SEARCHES)
def test_the_order_stays_the_problems_rule_unless_it_may_change(name: str) -> None:
    search, fixed = (by_name.build("placers", f"{name}{knobs}") for knobs in ("", ":order=false"))
    assert (name in OF_ORDERS) <= (isinstance(search.place(ORDERED, seed=SEEDS[name], budget=BUDGET).plan.order, tuple))
    assert fixed.place(ORDERED, seed=SEEDS[name], budget=BUDGET).plan.order is None
    for order in ("fifo", "program"):
        problem = replace(PROBLEM, runtime=IDEAL.with_knobs(order=order))
        result = fixed.place(problem, seed=SEEDS[name], budget=BUDGET)
        assert (result.plan.order, result.curve[-1][1]) == (None, simulate(problem, result.plan).step_seconds)
    fifo, pipelined = (
        replace(PROBLEM, runtime=RUNTIMES[FIFO.name]),
        replace(PROBLEM, objective=objective_of("max-load")),
    )
    for problem in (fifo, pipelined):
        same = (
            search.place(problem, seed=SEEDS[name], budget=BUDGET),
            fixed.place(problem, seed=SEEDS[name], budget=BUDGET),
        )
        assert same[0].plan == same[1].plan
        assert same[0].plan.order is None


@pytest.mark.parametrize("name", SEARCHES)
def test_time_is_a_limit_too(name: str) -> None:
    result = by_name.build("placers", f"{name}:seconds=1e-9").place(PROBLEM, budget=5000)
    assert result.simulations < 5000


@pytest.mark.parametrize("name", SEARCHES)
def test_a_file_of_another_search_is_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / "search.npz"
    search = by_name.build("placers", f"{name}:file={file}")
    search.place(PROBLEM, seed=1, budget=20)
    with pytest.raises(InputError, match=r"search\.npz is of another search"):
        search.place(PROBLEM, seed=2, budget=20)
    with pytest.raises(InputError, match=r"search\.npz is of another search"):
        search.place(replace(PROBLEM, runtime=IDEAL.with_knobs(host="30us")), seed=1, budget=20)
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(InputError, match=r"search\.npz is damaged"):
        search.place(PROBLEM, seed=1, budget=20)
    with pytest.raises(InputError, match=r"the folder .* does not exist"):
        by_name.build("placers", f"{name}:file={tmp_path / 'no' / 'where.npz'}").place(PROBLEM, budget=2)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("annealing:seconds=0", "annealing: seconds is 0.0; expected a number > 0"),
        ("genetic:population=3", "population is 3; expected at least 5"),
        ("genetic:bias=0.2", "bias is 0.2; expected a number from 0.5 to 1"),
        ("hill_climbing:patience=0", "patience is 0; expected at least 1"),
    ],
)
def test_a_knob_that_makes_no_sense_is_named(spec: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        by_name.build("placers", spec)


def test_evolution_solves_the_toy(four_ops_two_devices: Toy) -> None:
    plan = by_name.build("placers", "genetic:population=20").place(four_ops_two_devices.problem, budget=300).plan
    assert simulate(four_ops_two_devices.problem, plan).step_seconds == four_ops_two_devices.best_seconds


def test_the_best_of_a_generation_live_on_among_new_ones() -> None:
    search = by_name.build("placers", "genetic:population=20").begin(PROBLEM, 0, 100)
    keys, energies = search.keys.copy(), search.energies.copy()
    search.step(0.0, 80)
    elite = 4  # a fifth
    after = search.keys.tolist()
    assert all(each in after for each in keys[:elite].tolist())
    assert sum(each in after for each in keys.tolist()) == elite
    assert (np.diff(search.energies) >= 0).all()
    assert search.energies[0] <= energies[0]
    assert len(search.keys) == len(keys)
