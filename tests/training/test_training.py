"""Training: it learns, and it refuses what does not fit together."""

import json
import signal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from envs.simulation.simulator import Outcomes, simulate
from graphs.cluster import Cluster, Device
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.interrupts import Interrupts
from graphs.problem import Problem
from graphs.runtime import FIFO, RUNTIMES
from placers.learned.features import Observation
from placers.learned.gdp.policy import OneShotPolicy
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.settings import Ppo
from tests.oracle.toys import Toy, random_graph, toy_cluster, toy_graph
from training.learning.advantage import NOT_FITTING, rewards, standardised
from training.learning.ppo import PpoTrainer
from training.ppo_rewards import load_ppo_reward
from training.recipe import Recipe, load_recipe, recipe_names
from training.runs.finetune import FineTuned, FineTuner
from training.runs.run_folder import TRAINER
from training.runs.train import train

NETWORK = "graphsage_transformer:width=16,sage_layers=1,transformer_layers=1,heads=2"
DECODER = "sequential:width=16,sage_layers=1,heads=2,hidden=16"


def recipe(updates: int, placer: str = "gdp") -> Recipe:
    network = {"gdp": NETWORK, "sequential": DECODER}[placer]
    return Recipe(placer=placer, network=network, ppo=Ppo(updates=updates, samples=8, problems_per_update=2, epochs=2))


def untrained(placer: str) -> LearnedPlacer:
    new: Any = by_name.module("placers", placer).new_policy
    return LearnedPlacer(new({"gdp": NETWORK, "sequential": DECODER}[placer], 0), placer)


def policy_of(placer: LearnedPlacer) -> Any:
    return placer.policy


def problems() -> list[Problem]:
    sizes = ((6, 2), (9, 3), (12, 2))
    return [Problem(random_graph(ops, seed=ops), toy_cluster(devices, memory=1e4)) for ops, devices in sizes]


def weights(placer: Any) -> torch.Tensor:
    return torch.cat([value.flatten() for value in placer.policy.state_dict().values()])


def test_a_policy_looks_at_problems_when_it_meets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Problem] = []
    view = OneShotPolicy.view

    def noted(policy: OneShotPolicy, problem: Problem) -> Observation:
        seen.append(problem)
        return view(policy, problem)

    monkeypatch.setattr(OneShotPolicy, "view", noted)
    given = [Problem(random_graph(6, seed=i), toy_cluster(2)) for i in range(8)]
    trainer = PpoTrainer(policy_of(untrained("gdp")), given, Ppo(updates=30, samples=4, problems_per_update=2), 0)
    assert len(seen) == 1
    trainer.update()
    assert len(seen) <= 3
    for _ in range(29):
        trainer.update()
    assert {id(problem) for problem in seen} == {id(problem) for problem in given}
    assert len(seen) == len(given), "and remembers them"


def test_rewards_are_those_of_gdp_per_problem() -> None:
    fits = np.array([True, True, False, False])
    outcomes = Outcomes(np.array([4.0, 9.0, 1.0, 1.0]), np.array([[5, 5], [9, 1], [10.0, 0], [2, 15]]), fits)
    memory = np.array([10.0, 10.0])
    assert rewards(outcomes, memory, 1.0, load_ppo_reward("sqrt")).tolist() == [
        -2.0,
        -3.0,
        NOT_FITTING,
        1.5 * NOT_FITTING,
    ]
    assert rewards(outcomes, memory, 4.0, load_ppo_reward("sqrt")).tolist() == [
        -1.0,
        -1.5,
        NOT_FITTING,
        1.5 * NOT_FITTING,
    ]
    logarithms = rewards(outcomes, memory, 1.0, load_ppo_reward("log"))
    np.testing.assert_allclose(logarithms, [-np.log(4), -np.log(9), NOT_FITTING, 1.5 * NOT_FITTING])


def test_advantages_have_no_mean_and_no_scale() -> None:
    assert standardised(np.array([1.0, 3.0])).tolist() == [-1.0, 1.0]
    assert standardised(np.full(4, 7.0)).tolist() == [0.0] * 4


@pytest.mark.parametrize("placer", ["gdp", "sequential"])
def test_ppo_learns_to_use_the_faster_device(placer: str) -> None:
    slow, fast = (Device(f"gpu:{i}", "gpu", speed, 1.0, 100.0) for i, speed in enumerate((1.0, 4.0)))
    apart = np.ones((2, 2))
    cluster = Cluster("unequal", (slow, fast), apart, apart, np.array([[0, 1], [2, 3]]))
    problem = Problem(toy_graph([4, 4, 4, 4], [(0, 1), (1, 2), (2, 3)]), cluster)
    start = untrained(placer)
    trainer = PpoTrainer(policy_of(start), [problem], Ppo(updates=40, samples=32, learning_rate=3e-3), seed=0)
    for _ in range(trainer.settings.updates):
        trainer.update()
    assert simulate(problem, start.place(problem).plan).step_seconds == 4.0


def test_a_curriculum_begins_with_the_smallest_graphs_and_ends_with_all() -> None:
    graphs = [random_graph(ops, seed=ops) for ops in (40, 5, 30, 10, 20)]
    problems = [Problem(graph, toy_cluster(2)) for graph in graphs]
    settings = Ppo(updates=20, curriculum=0.5, problems_per_update=1, samples=2, epochs=1)
    trainer = PpoTrainer(OneShotPolicy.new(NETWORK, 0), problems, settings, seed=0)
    evaluators = [each.prepared.evaluator for each in trainer.problems]
    drawn = []
    for _ in range(20):
        before = [each.simulations for each in evaluators]
        trainer.update()
        (index,) = np.flatnonzero([each.simulations > b for each, b in zip(evaluators, before, strict=True)])
        drawn.append(len(graphs[index]))
    assert drawn[:2] == [5, 5]
    assert max(drawn[:5]) <= 20
    assert {30, 40} & set(drawn[10:])


@pytest.mark.parametrize("placer", ["gdp", "sequential"])
def test_finetuning_finds_the_known_optimum_and_leaves_its_start_alone(placer: str, four_ops_two_devices: Toy) -> None:
    problem = four_ops_two_devices.problem
    results: list[FineTuned] = []
    start = untrained(placer)
    before = weights(start).clone()
    plan = FineTuner(start, on_tuned=results.append).place(problem, budget=200).plan
    assert simulate(problem, plan).step_seconds == four_ops_two_devices.best_seconds
    assert results[0].history[-1] == (193, four_ops_two_devices.best_seconds)
    assert torch.equal(before, weights(start))
    assert not torch.equal(before, torch.cat([v.flatten() for v in results[0].policy.state_dict().values()]))


@pytest.mark.parametrize("placer", ["gdp", "sequential"])
def test_fine_tuning_makes_updates_of_as_many_samples_as_the_policy_says(placer: str) -> None:
    tuned = FineTuner(untrained(placer)).tune(problems()[0], simulations=200)
    spent = [simulations for simulations, _ in tuned.history]
    samples = policy_of(untrained(placer)).fine_tuning(problems()[0], 200).ppo.samples
    assert set(np.diff(spent)) == {samples} == {16}
    assert 200 - samples < spent[-1] <= 200


def test_of_a_larger_budget_gdp_makes_larger_updates_too() -> None:
    assert policy_of(untrained("gdp")).fine_tuning(problems()[0], 2000).ppo.samples == 22


def test_finetuning_makes_the_best_placement_that_was_tried_likelier(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(random_graph(20, seed=1), toy_cluster(3), runtime=RUNTIMES[FIFO.name])
    results: list[FineTuned] = []

    def likelihood() -> float:
        best = FineTuner(untrained("gdp"), on_tuned=results.append).place(problem, budget=300).plan
        policy: Any = results[-1].policy
        batch = policy.stack([policy.view(problem)])
        shown = policy.actions_of(batch, [best.per_unit(problem)])
        return float(policy.score(batch, shown).log_probability.detach().sum())

    tuned = likelihood()
    monkeypatch.setattr("placers.learned.gdp.policy.SELF_IMITATION", 0.0)
    assert tuned > likelihood()


def test_a_run_folder_tells_what_made_it(tmp_path: Path) -> None:
    train(recipe(2), problems(), out=tmp_path / "run", seed=1, command="placelab train")
    meta = json.loads((tmp_path / "run" / "meta.json").read_text())
    assert (meta["seed"], meta["updates"], meta["simulations"]) == (1, 2, 2 * 2 * 8)
    assert meta["versions"]["torch"] == torch.__version__
    assert load_recipe(str(tmp_path / "run" / "config.toml")) == recipe(2)
    assert (tmp_path / "run" / "command.txt").read_text() == "placelab train\n"
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines] == [1, 2]
    assert list((tmp_path / "run" / "tensorboard").iterdir())


def test_runs_that_do_not_fit_together_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "run"
    with pytest.raises(InputError, match="no run to resume"):
        train(recipe(2), problems(), out=folder, resume=True)
    train(recipe(2), problems(), out=folder, seed=1)
    with pytest.raises(InputError, match="holds a run already; resume it with `resume=True`"):
        train(recipe(2), problems(), out=folder, seed=1)
    with pytest.raises(InputError, match="written with seed 1, this run has seed 2"):
        train(recipe(2), problems(), out=folder, seed=2, resume=True)
    with pytest.raises(InputError, match=r"another recipe than this one: ppo\.updates was 2 and is 3; give"):
        train(recipe(3), problems(), out=folder, seed=1, resume=True)
    train(recipe(2), problems(), out=folder, seed=1, resume=True)
    assert "training is finished already, after 2 updates" in caplog.text
    (folder / TRAINER).write_bytes(b"damaged")
    with pytest.raises(InputError, match="damaged"):
        train(recipe(2), problems(), out=folder, seed=1, resume=True)


@pytest.mark.parametrize("placer", ["gdp", "sequential"])
@pytest.mark.parametrize("budget", [0, 1, 17, 40])
def test_finetuning_keeps_to_its_budget(placer: str, budget: int) -> None:
    problem = problems()[0]
    result = FineTuner(untrained(placer)).place(problem, budget=budget)
    result.plan.check(problem)
    assert result.simulations <= budget


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_read_and_written_back(name: str, tmp_path: Path) -> None:
    path = tmp_path / "copy.toml"
    path.write_text(load_recipe(name).to_toml())
    assert load_recipe(str(path)) == load_recipe(name)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[ppo]\nclipp = 1", r"ppo: unknown key 'clipp'; did you mean 'clip'\?"),
        ("[ppo]\nupdates = 0", r"ppo.updates: expected a whole number >= 1, got 0"),
        ("[ppo]\nclip = 2.0", r"ppo.clip: expected a number <= 1.0"),
        ("ppo = [", "recipe.toml"),
    ],
)
def test_a_recipe_with_a_mistake_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence):
        load_recipe(str(path))


def test_unknown_recipes_and_placers_are_named() -> None:
    with pytest.raises(InputError, match="unknown recipe 'gpd'; did you mean 'gdp'"):
        load_recipe("gpd")
    with pytest.raises(InputError, match=r"unknown recipe 'placeto_ppo'.*; it is now called 'placeto_clipped'"):
        load_recipe("placeto_ppo")
    with pytest.raises(InputError, match=r"recipe file nowhere.toml does not exist"):
        load_recipe("nowhere.toml")
    with pytest.raises(InputError, match="placer 'metis' cannot be trained"):
        train(msgspec.structs.replace(Recipe(), placer="metis"), problems(), out=Path("unused"))


def test_a_second_interrupt_is_not_deferred() -> None:
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert interrupts.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_after_a_training_an_interrupt_is_what_it_was_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
