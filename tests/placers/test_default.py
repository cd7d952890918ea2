"""The released policy is a placer by name, alone, fine-tuned, or at the head of a search."""

import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator, simulate
from evaluation.commands.load_placer import load_placer
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.problem import Problem
from graphs.runtime import runtime_of
from placers import default
from placers.annealing import Annealing
from placers.learned.lookup import placer_of
from placers.search.starts import MOST_SAMPLES, affordable, starts
from tests.oracle.toys import random_graph, toy_cluster
from tests.placers.stand_in import release, stand_in
from training.runs.finetune import FineTuner

PROBLEM = Problem(random_graph(20, seed=1), toy_cluster(3, memory=1e9))


@pytest.fixture(autouse=True)
def released(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return release(monkeypatch, tmp_path)


def test_it_is_the_policy_in_its_folder_under_its_own_name(released: Path) -> None:
    ours, same = load_placer("default"), placer_of(released)
    assert ours.name == "default"
    assert load_placer("default:samples=1").name == "default:samples=1"
    for budget in (0, 1, 5):
        result = ours.place(PROBLEM, seed=2, budget=budget)
        assert result.placer == "default"
        assert result.plan.devices == same.place(PROBLEM, seed=2, budget=budget).plan.devices
    assert load_placer("default:samples=1").place(PROBLEM, budget=9).simulations == 1  # whether it fits


@pytest.mark.parametrize("spec", ["ideal", "fifo", "parallelize:host=none", "run"])
def test_how_plans_are_run_says_which_policy_places(
    spec: str, released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_programs = stand_in(tmp_path / "programs", seed=4)
    monkeypatch.setattr(default, "OF_PROGRAMS", of_programs)
    chosen: Any = placer_of(released if spec in ("ideal", "fifo") else of_programs)
    expected = chosen.policy.state_dict()
    starts: list[Any] = [load_placer("default"), load_placer("default:samples=2"), load_placer("default+finetuned")]
    for each in (getattr(placer, "start", placer) for placer in starts):
        found = each.policy_for(replace(PROBLEM, runtime=runtime_of(spec))).state_dict()
        assert all(torch.equal(found[name], weights) for name, weights in expected.items())


def test_it_is_listed_but_is_none_of_the_classical_placers() -> None:
    from evaluation.commands.load_placer import classical_placers

    assert "default" in by_name.names("placers")
    assert "default" not in classical_placers()


def test_without_its_folder_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for folder, recipe in (("OF_PROGRAMS", "world"), ("RELEASED", "released")):
        monkeypatch.setattr(default, folder, tmp_path / "none")
        for spec in ("default", "default+finetuned", "annealing:policy=default"):
            with pytest.raises(InputError, match=rf"missing from .*none; `placelab train {recipe} --out .*none` makes"):
                load_placer(spec)


def test_a_name_is_the_placer_even_where_a_folder_is_called_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "heft").mkdir()
    stand_in(tmp_path / "mine")
    assert placer_of("heft").name == "heft"
    assert placer_of("mine").name == "sequential:checkpoint=mine"


@pytest.mark.parametrize("spec", ["default+finetuned", "gdp+finetuned", "sequential:samples=2+finetuned"])
def test_finetuned_after_a_spec_fine_tunes_it_within_the_budget(spec: str) -> None:
    tuner = load_placer(spec)
    assert isinstance(tuner, FineTuner)
    assert tuner.name == spec
    result = tuner.place(PROBLEM, seed=1, budget=40)
    assert result.placer == spec
    assert 16 < result.simulations <= 40
    start = replace(tuner.start, samples=1).place(PROBLEM, seed=1, budget=1).plan
    assert simulate(PROBLEM, result.plan).step_seconds <= simulate(PROBLEM, start).step_seconds


def test_a_run_folder_is_fine_tuned_and_named_by_its_checkpoint(tmp_path: Path) -> None:
    tuner = load_placer(f"{stand_in(tmp_path / 'run')}+finetuned")
    assert tuner.name == f"sequential:checkpoint={tmp_path / 'run'}+finetuned"
    assert load_placer(tuner.name).name == tuner.name


def test_what_has_no_policy_cannot_be_fine_tuned() -> None:
    with pytest.raises(InputError, match="'metis' cannot be fine-tuned: it has no policy"):
        load_placer("metis+finetuned")
    with pytest.raises(InputError, match="unknown placer 'gpd'; did you mean"):
        load_placer("gpd+finetuned")


@pytest.mark.parametrize("budget", [0, 1, 2, 3, 4, 5, 16, 25, 120])
def test_a_search_from_a_policy_uses_exactly_its_budget(budget: int) -> None:
    result = load_placer("annealing:policy=default").place(PROBLEM, seed=3, budget=budget)
    assert result.placer == "annealing:policy=default"
    assert result.simulations == budget


@pytest.mark.parametrize("budget", [0, 1])
def test_with_no_simulation_to_choose_by_it_is_the_greedy_placement(budget: int) -> None:
    greedy = load_placer("default:samples=1").place(PROBLEM).plan
    assert load_placer("annealing:policy=default").place(PROBLEM, budget=budget).plan.devices == greedy.devices


@pytest.mark.parametrize("seed", range(3))
def test_a_search_is_never_worse_than_the_policy_or_the_cheap_placers(seed: int) -> None:
    budget = 64
    found = Annealing(policy="default").place(PROBLEM, seed=seed, budget=budget).plan
    candidates = [
        load_placer("default").place(PROBLEM, seed=seed, budget=16).plan,
        *(placer.place(PROBLEM, budget=0).plan for placer, _ in affordable((PROBLEM,), budget, np.inf)),
    ]
    assert simulate(PROBLEM, found).step_seconds <= min(simulate(PROBLEM, plan).step_seconds for plan in candidates)


@pytest.mark.parametrize("budget", [1, 2, 16, 100])
def test_the_policys_placement_comes_first_and_is_paid_for(budget: int) -> None:
    learned = load_placer("default")
    first, spent, notes, *_ = starts((PROBLEM,), budget, seed=4, learned=learned)
    result = learned.place(PROBLEM, seed=4, budget=spent)
    assert (first[0][PROBLEM.graph.units] == result.plan.placement).all()
    assert result.simulations == spent <= budget // 2
    cheap = affordable((PROBLEM,), budget, np.inf)
    assert len(first) == min(budget, 1 + len(cheap))
    assert not notes
    if budget > len(cheap):
        others = starts((PROBLEM,), budget, seed=4).placements
        assert (first[1:] == others).all()


def test_a_search_from_a_folder_equals_one_from_the_same_policy_and_goes_on_where_it_stopped(
    released: Path, tmp_path: Path
) -> None:
    whole = load_placer("annealing:policy=default").place(PROBLEM, seed=5, budget=90).plan
    file = tmp_path / "search.npz"
    spec = f"annealing:policy={released},file={file}"
    assert load_placer(spec).name == f"annealing:file={file},policy={released}"
    assert load_placer(spec).place(PROBLEM, seed=5, budget=90).plan.devices == whole.devices
    again = load_placer(spec).place(PROBLEM, seed=5, budget=90)
    assert (again.plan.devices, again.simulations) == (whole.devices, 90)


def test_it_travels_to_another_process() -> None:
    sent: Annealing = pickle.loads(pickle.dumps(Annealing(policy="default")))
    assert sent.place(PROBLEM, seed=1, budget=9) == Annealing(policy="default").place(PROBLEM, seed=1, budget=9)


def test_a_policy_that_does_not_exist_is_refused_before_any_work() -> None:
    with pytest.raises(InputError, match="unknown placer 'defualt'; did you mean 'default'"):
        Annealing(policy="defualt")


@dataclass(frozen=True, eq=False)
class Knowing:
    """A placer that knows the answer, and what it was allowed to simulate."""

    answer: Ints
    allowed: list[int]
    name: str = "knowing"

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        self.allowed.append(budget)
        return PlacerResult.of_units(problem, self.answer, self.name, seed)


def test_the_walk_begins_at_the_policys_placement_if_that_is_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(random_graph(8, seed=3), toy_cluster(3))
    everything = np.indices((3,) * 8).reshape(8, -1).T
    best = everything[Simulator(problem).run_batch(everything).best()]
    monkeypatch.setattr("placers.annealing.placer_of", lambda _: Knowing(best, []))
    begins = [settings.begin(problem, 0, 20).energy for settings in (Annealing(policy="knowing"), Annealing())]
    assert begins[0] < begins[1], "no cheap placer finds the optimum"
    assert begins[0] == np.log(simulate(problem, Plan.of_units(problem, best)).step_seconds)


def test_a_policy_may_spend_a_share_that_falls_with_the_budget() -> None:
    knowing = Knowing(np.zeros(PROBLEM.graph.num_units, np.int64), [])
    for budget in (0, 1, 2, 16, 100, 1000, 20_000):
        starts((PROBLEM,), budget, seed=0, learned=knowing)
    assert knowing.allowed == [0, 0, 1, 8, MOST_SAMPLES, MOST_SAMPLES, MOST_SAMPLES]
