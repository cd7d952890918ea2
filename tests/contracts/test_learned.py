"""What every learned placer promises, whichever it is."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from envs.simulation.simulator import simulate
from evaluation.commands.load_placer import classical_placers, load_placer
from graphs.foundation import by_name
from graphs.problem import Problem
from placers.learned.learned_placer import PolicyPlacer
from placers.learned.lookup import learned_placers, trainer_of
from placers.learned.settings import Imitation, Settings, WholePlans
from tests.oracle.toys import random_graph, toy_cluster
from tests.training.metrics_lines import metrics_lines
from training.recipe import SECTIONS, Recipe, Validation, load_recipe, recipe_names
from training.runs.finetune import FineTuned, FineTuner
from training.runs.train import train
from training.runs.trainers import TRAINERS

NAMES = learned_placers()


def problems(devices: int = 2) -> list[Problem]:
    return [Problem(random_graph(ops, seed=ops), toy_cluster(devices, memory=1e4)) for ops in (6, 9)]


def recipe(name: str, updates: int = 2) -> Recipe:
    """That of the placer's name, if there is one, with few and small updates."""
    given = load_recipe(name) if name in recipe_names() else Recipe(placer=name, network=name)
    if trainer_of(name) == "reinforce":
        return replace(given, reinforce=replace(given.reinforce, updates=updates, problems_per_update=2))
    if trainer_of(name) == "whole_plans":
        few = WholePlans(updates=updates, problems_per_update=2)
        return replace(given, validation=Validation(), whole_plans=few)
    ppo = replace(given.ppo, updates=updates, problems_per_update=2, samples=4, epochs=2)
    return replace(given, ppo=ppo, imitation=Imitation(simulations=5, updates=1, weight=0.1))


def new_policy(name: str, seed: int = 0) -> Any:
    return by_name.module("placers", name).new_policy(recipe(name).network, seed)


def weights(policy: Any) -> torch.Tensor:
    return torch.cat([value.flatten() for value in policy.state_dict().values()])


def check_a_whole_life(name: str, folder: Path) -> None:
    """Two updates, one of which another process might have done; then what the folder's policy can do."""
    whole = train(recipe(name), problems(), out=folder / "whole", seed=1)
    stop_after_the_first_update(name, folder / "stopped")
    resumed = train(recipe(name), problems(), out=folder / "stopped", seed=1, resume=True)
    assert torch.equal(weights(whole.policy), weights(resumed.policy)), "of equal seeds; baselines are resumed, too"
    assert metrics_lines(folder / "whole") == metrics_lines(folder / "stopped")
    assert not torch.equal(weights(whole.policy), weights(new_policy(name, seed=1)))
    assert not torch.equal(weights(new_policy(name, seed=2)), weights(new_policy(name, seed=1)))
    assert (folder / "whole" / "card.md").read_text().count(TRAINER_WORDS[trainer_of(name)]) == 1

    problem = problems()[1]
    loaded = load_placer(str(folder / "whole"))
    assert loaded.name == f"{name}:checkpoint={folder / 'whole'}"
    results = [loaded.place(problem, seed=3, budget=budget) for budget in (1, 5)]
    assert [result.simulations for result in results] == [0, 5]
    seconds = [simulate(problem, result.plan).step_seconds for result in results]
    assert seconds[1] <= seconds[0]
    assert results == [whole.place(problem, seed=3, budget=budget) for budget in (1, 5)]

    tuned: list[FineTuned] = []
    assert isinstance(loaded, PolicyPlacer)
    best = FineTuner(loaded, on_tuned=tuned.append).place(problem, budget=40)
    assert 5 < best.simulations <= 40
    assert simulate(problem, best.plan).step_seconds == tuned[0].history[-1][1] <= seconds[0]
    assert torch.equal(weights(loaded.policy), weights(whole.policy)), "its start is left alone"
    assert not torch.equal(weights(tuned[0].policy), weights(whole.policy))


TRAINER_WORDS = {
    "ppo": "2 updates by PPO",
    "reinforce": "2 updates by REINFORCE",
    "whole_plans": "2 updates by list-wise ranking",
}


def stop_after_the_first_update(name: str, folder: Path) -> None:
    """Ctrl-C in the first update."""
    trainer = TRAINERS[trainer_of(name)]
    original = trainer.update

    def pressed(self: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return original(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "update", pressed)
        with pytest.raises(KeyboardInterrupt, match="stopped after update 1 of 2"):
            train(recipe(name), problems(), out=folder, seed=1)


def test_there_are_some_and_the_benchmark_of_classical_placers_leaves_them_out() -> None:
    assert {"gdp", "sequential", "colocrl", "hdp", "placeto", "whole_plans"} <= set(NAMES)
    assert not {*NAMES, "default"} & set(classical_placers())


@pytest.mark.parametrize("name", NAMES)
def test_it_is_trained_saved_loaded_fine_tuned_and_asked(name: str, tmp_path: Path) -> None:
    check_a_whole_life(name, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_its_policy_says_what_it_is_and_how_it_is_fine_tuned(name: str) -> None:
    policy, problem = new_policy(name), problems()[0]
    assert policy.kind == name
    assert trainer_of(name) in TRAINERS
    settings, defaults = policy.fine_tuning(problem, 100), Settings()
    others = {section for trainer, sections in SECTIONS.items() if trainer != trainer_of(name) for section in sections}
    of_tuning = others & set(Settings.__struct_fields__)  # which has no last stage
    assert all(getattr(settings, section) == getattr(defaults, section) for section in of_tuning)


@pytest.mark.parametrize("name", [name for name in NAMES if trainer_of(name) != "whole_plans"])
def test_candidates_repeat_and_begin_with_the_most_likely(name: str) -> None:
    policy, problem = new_policy(name), problems()[0]
    one, again, other = (policy.candidates(problem, 4, seed) for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert np.array_equal(one[0], other[0])
    assert one.shape[1] == len(problem.units)
    assert 1 <= len(one) <= 4
    assert set(np.unique(one)) <= {0, 1}


@pytest.mark.parametrize("name", [name for name in NAMES if trainer_of(name) == "ppo"])
def test_actions_are_rated_together_as_they_are_alone(name: str) -> None:
    policy = new_policy(name)
    batch = policy.stack([policy.view(problem) for problem in problems()])
    one, other = (policy.act(batch, samples, torch.Generator().manual_seed(samples)) for samples in (3, 2))
    both = one.cat(other)
    assert both.devices.shape == (2, 5, 9)
    alone, together = policy.score(batch, one), policy.score(batch, both)
    assert together.log_probability.shape == (2, 5, together.mask.shape[1])
    assert together.entropy.shape == together.mask.shape
    torch.testing.assert_close(together.log_probability[:, :3], alone.log_probability)
    assert not together.log_probability.masked_select(~together.mask[:, None]).any()
    known = policy.actions_of(batch, [np.zeros(len(problem.units), np.int64) for problem in problems()])
    assert known.devices.shape == (2, 1, 9)
    assert not known.devices[0, 0, :6].any()
