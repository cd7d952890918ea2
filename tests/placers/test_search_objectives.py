"""A placer that chooses among placements chooses by the problem's objective."""

from dataclasses import replace
from pathlib import Path

import pytest

from envs.gym.iterative import PlacetoEnv
from envs.objectives import Evaluator, evaluate_objective, evaluator_of
from envs.plans.plan import Plan
from graphs.files.graph_source import graph_source
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.problem import Problem, objective_of
from placers.annealing import Annealing
from placers.contract.placer import Placer
from placers.learned.gdp.policy import OneShotPolicy
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.placeto.policy import PlacetoPolicy
from placers.learned.sequential.policy import SequentialPolicy
from placers.search.levels import levels_of
from placers.search.starts import starts
from tests.oracle.toys import random_graph, toy_cluster
from training.learning.reinforce import ReinforceTrainer
from training.runs.finetune import FineTuner

DATA = Path(__file__).parents[3] / "shared" / "data" / "msr" / "throughput"
WORKLOADS = ("layer_bert24_training", "layer_gnmt_training", "layer_inceptionv3_training")
STEP_TIME = Problem(random_graph(14, seed=2), toy_cluster(3, memory=1e9))
MAX_LOAD = replace(STEP_TIME, objective=objective_of("max-load"))
SEARCHES = ("annealing", "genetic:population=20", "hill_climbing", "random")


def load(plan: Plan, problem: Problem = MAX_LOAD) -> float:
    """Seconds of the busiest device."""
    found = evaluate_objective(problem, plan)
    assert found is not None
    return found


def learned() -> list[LearnedPlacer]:
    """Policies that know nothing: what they choose by is all that they differ in."""
    return [
        LearnedPlacer(OneShotPolicy.new("graphsage_transformer", seed=0), "gdp"),
        LearnedPlacer(SequentialPolicy.new("sequential", seed=0), "sequential"),
        LearnedPlacer(PlacetoPolicy.new("placeto:width=8,rounds=4,mean=true,explore=0.05", seed=0), "placeto"),
    ]


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_makes_the_objective_small(name: str) -> None:
    placer: Placer = by_name.build("placers", name)
    by_load, by_step = (placer.place(problem, seed=1, budget=400) for problem in (MAX_LOAD, STEP_TIME))
    assert load(by_load.plan) < load(by_step.plan)
    assert by_load.curve[-1][1] == load(by_load.plan)
    assert [seconds for _, seconds in by_load.curve] == sorted((s for _, s in by_load.curve), reverse=True)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("budget", [0, 1, 2])
def test_a_budget_of_next_to_nothing_is_kept(name: str, budget: int) -> None:
    result = by_name.build("placers", name).place(MAX_LOAD, budget=budget)
    result.plan.check(MAX_LOAD)
    assert result.simulations <= budget


@pytest.mark.parametrize("placer", learned(), ids=lambda placer: placer.name)
def test_a_policys_best_sample_is_chosen_by_the_objective(placer: Placer, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Ints] = []

    def noting(problem: Problem) -> Evaluator:
        evaluator = evaluator_of(problem)
        run_batch = evaluator.run_batch
        evaluator.run_batch = lambda placements, **how: seen.append(placements) or run_batch(placements, **how)  # type: ignore
        return evaluator

    monkeypatch.setattr("placers.learned.learned_placer.evaluator_of", noting)
    result = placer.place(MAX_LOAD, seed=0, budget=30)
    assert len(seen[0]) == result.simulations > 1
    assert load(result.plan) == evaluator_of(MAX_LOAD).seconds(seen[0]).min()


def test_a_partition_is_chosen_by_the_objective() -> None:
    problem = Problem(random_graph(60, seed=5), toy_cluster(3, memory=1e9), objective=objective_of("max-load"))
    one, best = (by_name.build("placers", "metis").place(problem, budget=budget) for budget in (1, 20))
    assert best.simulations > 1
    assert load(best.plan, problem) <= load(one.plan, problem)


@pytest.mark.parametrize("placer", learned()[:2], ids=lambda placer: placer.name)
def test_fine_tuning_pays_for_the_objective(placer: LearnedPlacer) -> None:
    tuned = FineTuner(placer).tune(MAX_LOAD, seed=0, simulations=120)
    assert tuned.result.curve[-1][1] == tuned.history[-1][1] == load(tuned.result.plan)
    assert load(tuned.result.plan) <= load(placer.place(MAX_LOAD, seed=0, budget=16).plan)


def test_what_knows_step_times_only_says_so() -> None:
    with pytest.raises(InputError, match="exact knows step times only, and the objective is 'max-load'; use annealing"):
        by_name.build("placers", "exact").place(MAX_LOAD, budget=0)
    with pytest.raises(InputError, match=r"placeto\+finetuned, by REINFORCE, knows step times only"):
        FineTuner(learned()[2]).place(MAX_LOAD, budget=40)


def test_a_search_saved_for_another_objective_is_refused(tmp_path: Path) -> None:
    search = by_name.build("placers", f"annealing:file={tmp_path / 'search.npz'}")
    search.place(STEP_TIME, budget=20)
    with pytest.raises(InputError, match="is of another search"):
        search.place(MAX_LOAD, budget=20)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_annealing_improves_the_best_start_of_a_released_workload(workload: str) -> None:
    given = graph_source(str(DATA / f"{workload}.json")).problem if DATA.is_dir() else None
    if given is None:
        pytest.skip("the released workloads are not at hand")
    problem = replace(given, objective=objective_of("max-load"))
    outcomes = evaluator_of(problem).run_batch(starts(levels_of(problem), 1000, seed=0).placements)
    best = outcomes.step_seconds[outcomes.fits].min()
    result = Annealing().place(problem, budget=1000)
    assert load(result.plan, problem) == result.curve[-1][1] <= best
    assert result.curve[-1][1] < result.curve[0][1]


def test_rewards_of_another_objective_are_refused() -> None:
    with pytest.raises(InputError, match="an environment knows step times only, and the objective is 'max-load'"):
        PlacetoEnv(MAX_LOAD)
    with pytest.raises(InputError, match="REINFORCE knows step times only"):
        ReinforceTrainer(PlacetoPolicy.new("placeto:width=8,rounds=4", seed=0), [MAX_LOAD])
