"""Validation: a run keeps the weights that place problems of other kinds best, averaged if so asked."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from envs.prepared_problem import PreparedProblem
from evaluation.reporting.learning import learning_section
from evaluation.reporting.run_data import RunData
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import LONGEST_PATH
from placers.learned.policy_file import load_policy
from placers.learned.sequential.policy import SequentialPolicy
from placers.learned.settings import Ppo
from tests.oracle.toys import random_graph, toy_cluster
from tests.training.interruption import stopped_after
from tests.training.small_problems import NETWORK, PROBLEMS
from training.recipe import ProblemSet, Recipe, Validation, load_recipe
from training.runs.problem_sets import validation_problems
from training.runs.selection import NOT_FITTING, Selection
from training.runs.sweep import worth
from training.runs.train import train

RECIPE = Recipe(
    placer="sequential",
    network=NETWORK,
    problems=PROBLEMS,
    validation=Validation(every=2, problems=4, averaging=0.5),
    ppo=Ppo(updates=5, problems_per_update=3, samples=4, reward="log", learning_rate=1e-2),
)


def some_policy(seed: int) -> SequentialPolicy:
    return SequentialPolicy.new(NETWORK, seed)


def some_problem(*, memory: float = 1e4) -> Problem:
    return Problem(random_graph(10, seed=1), toy_cluster(2, memory=memory))


def state_of(policy: Any) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in policy.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_what_is_validated_is_the_greedy_plan_of_each_problem() -> None:
    policy, problem = some_policy(0), some_problem()
    selection = Selection(Validation(every=1, problems=2), [problem, some_problem(memory=0.5)])
    assert selection.follow(policy, 1, is_last=False)
    [found] = selection.validated
    known = PreparedProblem(problem)
    step = known.outcomes(policy.candidates(problem, 1, 0)).step_seconds[0] / known.lower_bound
    other = PreparedProblem(some_problem(memory=0.5))
    unfit = other.outcomes(policy.candidates(other.problem, 1, 0)).step_seconds[0] / other.lower_bound
    assert found.fitting == 0.5
    assert found.step_over_bound == pytest.approx(np.sqrt(step * unfit * NOT_FITTING))
    assert found.kept


def test_the_best_weights_are_kept_and_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr(SequentialPolicy, "greedy", lambda policy, known: (next(ratios), True))
    selection = Selection(Validation(every=1), [some_problem()])
    policies = [some_policy(seed) for seed in range(3)]
    assert same(selection.weights(policies[0]), state_of(policies[0])), "nothing is validated yet"
    for update, policy in enumerate(policies, start=1):
        selection.follow(policy, update, is_last=False)
    assert [each.kept for each in selection.validated] == [True, True, False]
    assert same(selection.weights(policies[2]), state_of(policies[1]))
    again = Selection(Validation(every=1), [some_problem()])
    again.restore(selection.state())
    assert again.validated == selection.validated
    assert same(again.weights(policies[2]), state_of(policies[1]))


def test_averages_are_exponential() -> None:
    selection = Selection(Validation(every=3, averaging=0.9), [some_problem()])
    policies = [some_policy(seed) for seed in range(3)]
    for update, policy in enumerate(policies, start=1):
        assert selection.follow(policy, update, is_last=False) == (update == 3)
    states = [state_of(policy) for policy in policies]
    for key, value in selection.weights(policies[2]).items():
        expected = 0.9 * (0.9 * states[0][key] + 0.1 * states[1][key]) + 0.1 * states[2][key]
        assert torch.allclose(value, expected, atol=1e-6)


def test_without_validation_the_last_weights_are_the_policy() -> None:
    policy, selection = some_policy(0), Selection(Validation(), [])
    assert not selection.follow(policy, 1, is_last=True)
    assert selection.state() == {}
    assert same(selection.weights(policy), state_of(policy))
    assert validation_problems(replace(RECIPE, validation=Validation())) == []


def test_a_run_is_validated_as_asked_and_resumed_to_the_same_end(tmp_path: Path) -> None:
    whole = train(RECIPE, out=tmp_path / "whole", seed=3)
    lines = [json.loads(line) for line in (tmp_path / "whole" / "validation.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines] == [2, 4, 5]
    best = min(lines, key=lambda line: float(line["step_over_bound"]))
    assert best == [line for line in lines if line["kept"]][-1]
    again = Selection(replace(RECIPE.validation, averaging=0.0), validation_problems(RECIPE))
    again.follow(load_policy(tmp_path / "whole", SequentialPolicy)[0], 1, is_last=True)
    assert again.validated[0].step_over_bound == pytest.approx(best["step_over_bound"])
    with stopped_after(3, 5):
        train(RECIPE, out=tmp_path / "resumed", seed=3)
    resumed = train(RECIPE, out=tmp_path / "resumed", seed=3, resume=True)
    assert same(state_of(whole.policy), state_of(resumed.policy))
    for file in ("trainer.safetensors", "validation.jsonl", "policy.safetensors"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "resumed" / file).read_bytes()


def test_problems_to_validate_on_are_of_the_kinds_held_out_whatever_the_seed_of_training() -> None:
    problems = validation_problems(RECIPE)
    assert [problem.graph.name for problem in problems] == ["random-fan", "random-tiles"] * 2
    assert {problem.runtime.order for problem in problems} == {LONGEST_PATH}


def test_validation_needs_kinds_that_are_held_out_or_graphs_to_evaluate_on() -> None:
    nothing = ProblemSet(graphs=("rnnlm:layers=1",))
    with pytest.raises(InputError, match=r"name kinds in problems\.world\.held_out, or test_graphs"):
        Recipe(placer="sequential", network=NETWORK, problems=nothing, validation=Validation(every=10))


def test_graphs_to_evaluate_on_are_a_curve_and_choose_no_weights(tmp_path: Path) -> None:
    small = "rnnlm:layers={},steps=2,hidden=8,batch=2,vocabulary=16"
    chosen = ProblemSet(
        graphs=(small.format(1),), test_graphs=(small.format(2), small.format(3)), clusters=("p100x2",),
        test_clusters=("p100x2", "p100x3"), groups=(8,), test_groups=8,
    )  # fmt: skip
    recipe = replace(RECIPE, problems=chosen, validation=Validation(every=2, problems=3))
    unseen = validation_problems(recipe)
    assert len(unseen) == 2, "at most three of four, evenly"
    trained = train(recipe, out=tmp_path / "run", seed=3)
    plain = train(replace(recipe, validation=Validation()), out=tmp_path / "plain", seed=3)
    assert same(state_of(trained.policy), state_of(plain.policy)), "the last weights"
    lines = [json.loads(line) for line in (tmp_path / "run" / "validation.jsonl").read_text().splitlines()]
    assert [(line["update"], line["kept"]) for line in lines] == [(2, False), (4, False), (5, False)]
    assert trained.policy is not None
    greedy = [trained.policy.greedy(PreparedProblem(problem))[0] for problem in unseen]
    assert lines[-1]["step_over_bound"] == pytest.approx(np.exp(np.mean(np.log(greedy))))
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    logged = {line["update"]: line.get("validation/step_over_bound") for line in metrics}
    assert logged == {1: None, 3: None} | {line["update"]: line["step_over_bound"] for line in lines}
    (said,) = [each for each in learning_section(RunData.of(tmp_path / "run")).sentences if "chosen" in each]
    assert "by which no weights are chosen, were looked at 3 times" in said
    assert worth(tmp_path / "run") == metrics[-1]["step_over_bound"], "a sweep is judged by training problems"


def test_the_recipe_of_the_released_policy_holds_kinds_and_families_out() -> None:
    recipe = load_recipe("released")
    assert recipe.problems.order == "longest_path"
    assert set(recipe.problems.world.held_out).isdisjoint(recipe.problems.world.trained_on)
    assert {"nasnet", "wavenet", "xlnet"}.isdisjoint(recipe.problems.families)
    assert recipe.validation.every > 0
