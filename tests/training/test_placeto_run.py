"""Placeto's runs: the recipe's sections, what is refused, and fine-tuning."""

import json
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from envs.simulation.simulator import simulate
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.placeto.placer import UNTRAINED
from placers.learned.placeto.policy import PlacetoPolicy
from placers.learned.settings import EpisodeRules, Ppo, Reinforce
from placers.single_device import SingleDevice
from tests.oracle.toys import Toy, random_graph, toy_cluster
from training.recipe import Recipe, load_recipe
from training.runs.finetune import FineTuned, FineTuner
from training.runs.run_folder import TRAINER
from training.runs.train import train

NETWORK = "placeto:rounds=2,order=random"


def recipe(updates: int) -> Recipe:
    """The recipe that comes with placelab, shrunk; of any number of devices."""
    given = load_recipe("placeto")
    fewer = replace(given.reinforce, updates=updates, problems_per_update=2)
    return replace(given, network=NETWORK, reinforce=fewer, rules=replace(given.rules, start="best"))


def problems() -> list[Problem]:
    sizes = ((4, 2), (6, 3), (5, 2))
    return [Problem(random_graph(ops, seed=ops), toy_cluster(devices, memory=1e4)) for ops, devices in sizes]


def trained(updates: int, out: Path, seed: int = 3, resume: bool = False) -> LearnedPlacer:
    placer = train(recipe(updates), problems(), out=out, seed=seed, resume=resume)
    assert isinstance(placer, LearnedPlacer)
    return placer


def untrained(network: str = UNTRAINED) -> LearnedPlacer:
    return LearnedPlacer(PlacetoPolicy.new(network, 0), "placeto")


def weights(placer: LearnedPlacer) -> torch.Tensor:
    assert placer.policy is not None
    return torch.cat([value.flatten() for value in placer.policy.state_dict().values()])


def test_a_run_folder_is_that_of_any_placer(tmp_path: Path) -> None:
    placer = trained(2, tmp_path)
    assert load_recipe(str(tmp_path / "config.toml")) == recipe(2)
    meta = json.loads((tmp_path / "meta.json").read_text())
    assert (meta["placer"], meta["network"], meta["seed"], meta["updates"]) == ("placeto", NETWORK, 3, 2)
    assert meta["versions"]["torch"] == torch.__version__
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines] == [1, 2]
    assert lines[-1]["simulations"] == meta["simulations"]
    assert list((tmp_path / "tensorboard").iterdir())
    assert f"--placer placeto:checkpoint={tmp_path}" in (tmp_path / "card.md").read_text()

    again = by_name.build("placers", placer.name)
    assert again.policy.shape.order == "random", "a policy visits as it has learned to"
    assert again.place(problems()[1]) == placer.place(problems()[1])


def test_runs_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(InputError, match="no run to resume"):
        trained(1, out, resume=True)
    with pytest.raises(InputError, match="for 2 devices, cluster 'toy3' has 3"):
        train(replace(recipe(1), network="placeto:devices=2"), problems(), out=out)
    assert not out.exists(), "nothing is left behind that could not be resumed"
    trained(1, out)
    with pytest.raises(InputError, match="holds a run already"):
        trained(1, out)
    with pytest.raises(InputError, match="another seed, policy, problems, rules or settings"):
        trained(1, out, seed=9, resume=True)
    with pytest.raises(InputError, match="another seed, policy, problems, rules or settings"):
        train(recipe(1), problems()[:2], out=out, seed=3, resume=True)
    (out / TRAINER).write_bytes(b"x" * 20)
    with pytest.raises(InputError, match="damaged"):
        trained(1, out, resume=True)


def test_sections_of_other_placers_are_refused_and_left_out_of_files(tmp_path: Path) -> None:
    assert "[ppo]" not in load_recipe("placeto").to_toml()
    assert "[reinforce]" not in load_recipe("gdp").to_toml()
    with pytest.raises(InputError, match=r"\[ppo\] .* 'placeto'; .* set \[reinforce\], \[rules\] instead"):
        Recipe(placer="placeto", ppo=Ppo(updates=3))
    with pytest.raises(InputError, match=r"\[reinforce\] says nothing to placer 'gdp'"):
        Recipe(reinforce=Reinforce(updates=3))
    path = tmp_path / "recipe.toml"
    path.write_text('placer = "placeto"\n[ppo]\nclip = 0.5\n')
    with pytest.raises(InputError, match=r"recipe.toml: \[ppo\] says nothing"):
        load_recipe(str(path))
    path.write_text('placer = "placeto"\n[rules]\nreward = "improvment"\n')
    with pytest.raises(InputError, match=r"rules: unknown reward .improvment."):
        load_recipe(str(path))


def test_rules_are_kept_with_and_without_a_threshold_of_memory(tmp_path: Path) -> None:
    for threshold in (None, 8.0):
        given = Recipe(placer="placeto", network=NETWORK, rules=EpisodeRules(memory_gib=threshold))
        path = tmp_path / "recipe.toml"
        path.write_text(given.to_toml())
        assert load_recipe(str(path)) == given


def test_the_recipe_is_for_its_clusters() -> None:
    given = load_recipe("placeto")
    devices = PlacetoPolicy.new(given.network, 0).shape.devices
    clusters = {*given.problems.clusters, *given.problems.test_clusters}
    assert {len(by_name.build("graphs.clusters", name)) for name in clusters} == {devices}


def test_finetuning_finds_the_known_optimum_and_leaves_its_start_alone(four_ops_two_devices: Toy) -> None:
    problem = four_ops_two_devices.problem
    start, results = untrained(), list[FineTuned]()
    before = weights(start).clone()
    tuner = FineTuner(start, on_tuned=results.append)
    result = tuner.place(problem, budget=200)
    assert result.placer == tuner.name == "placeto+finetuned"
    assert simulate(problem, result.plan).step_seconds == four_ops_two_devices.best_seconds
    (tuned,) = results
    assert tuned.history[-1] == (result.simulations, four_ops_two_devices.best_seconds)
    assert result.curve[-1][1] == four_ops_two_devices.best_seconds
    assert [seconds for _, seconds in result.curve] == sorted({seconds for _, seconds in result.curve}, reverse=True)
    assert result.simulations <= 16 + 1 + 1 + 2**4, "samples, the two starts, and no placement is simulated twice"
    assert torch.equal(before, weights(start))
    assert not torch.equal(before, torch.cat([each.flatten() for each in tuned.policy.state_dict().values()]))


def test_finetuning_knows_the_placement_with_all_units_together() -> None:
    problem = problems()[0]
    result = FineTuner(untrained()).place(problem, budget=2)
    assert result.simulations == 2, "the opening and all on the fastest device"
    assert (
        simulate(problem, result.plan).step_seconds
        <= simulate(problem, SingleDevice().place(problem).plan).step_seconds
    )


@pytest.mark.parametrize("network", ["placeto:rounds=2", "placeto:devices=3,rounds=2"])
@pytest.mark.parametrize("budget", [0, 1, 2, 17, 90])
def test_finetuning_keeps_to_its_budget(network: str, budget: int) -> None:
    problem = problems()[1]
    results: list[FineTuned] = []
    result = FineTuner(untrained(network), on_tuned=results.append).place(problem, budget=budget)
    result.plan.check(problem)
    assert result.simulations <= budget
    history = results[0].history
    assert [count for count, _ in history] == sorted({count for count, _ in history})
    assert [seconds for _, seconds in history] == sorted((seconds for _, seconds in history), reverse=True)
    if budget:
        assert simulate(problem, result.plan).step_seconds == history[-1][1]
