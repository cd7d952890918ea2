"""Training on random problems: renewed by the updates, resumed to the same end, next to others, or alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

import placelab
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.learned.policy_meta import load_meta
from placers.learned.sequential.policy import SequentialPolicy
from placers.learned.settings import Imitation, Ppo
from tests.oracle.toys import random_graph, toy_cluster
from tests.training.interruption import stopped_after
from training.learning.ppo import PpoTrainer
from training.problems.random.renewed import RenewedProblems
from training.problems.random.settings import World
from training.recipe import ProblemSet, Recipe, load_recipe
from training.runs.model_card import model_card
from training.runs.seeds import Trained
from training.runs.train import train

NETWORK = "sequential:width=16,heads=2,hidden=16,sage_layers=1"
TINY = World(problems=6, renewed=1.5, units=(8, 12), devices=(2, 3), held_out=("fan", "tiles"))
RECIPE = Recipe(
    placer="sequential",
    network=NETWORK,
    problems=ProblemSet(world=TINY),
    ppo=Ppo(updates=4, problems_per_update=3, samples=4, reward="log"),
    imitation=Imitation(simulations=20, updates=2, weight=0.1),
)
LABELLED = replace(RECIPE, imitation=Imitation(simulations=20, updates=2, weight=0.1, again=1))


def weights(placer: Any) -> torch.Tensor:
    return torch.cat([each.flatten() for each in placer.policy.state_dict().values()])


def trainer_of(*, stay: int, share: float, **settings: Any) -> PpoTrainer[Any, Any, Any]:
    problems = [Problem(random_graph(10, seed=seed), toy_cluster(2, memory=1e4)) for seed in range(stay)]
    world = World(problems=40, renewed=2.0, units=(8, 10), devices=(2, 2), share=share)
    ppo = Ppo(problems_per_update=8, samples=2, **settings)
    return PpoTrainer(SequentialPolicy.new(NETWORK, 0), problems, ppo, 0, renewed=RenewedProblems(world, 0))


def names(chosen: list[Any]) -> list[str]:
    return [each.prepared.problem.graph.name.partition("-")[0] for each in chosen]


def test_a_run_that_was_stopped_meets_the_same_problems_and_ends_alike(tmp_path: Path) -> None:
    whole = train(LABELLED, out=tmp_path / "whole", seed=3)
    with stopped_after(2, 4):
        train(LABELLED, out=tmp_path / "resumed", seed=3)
    resumed = train(LABELLED, out=tmp_path / "resumed", seed=3, resume=True)
    assert torch.equal(weights(whole), weights(resumed))
    states = [(tmp_path / run / "trainer.safetensors").read_bytes() for run in ("whole", "resumed")]
    assert states[0] == states[1]
    other = train(LABELLED, out=tmp_path / "other", seed=4)
    assert not torch.equal(weights(whole), weights(other))


def test_a_share_of_an_updates_problems_is_random_and_the_window_moves() -> None:
    trainer = trainer_of(stay=12, share=0.25)
    [shard] = trainer.shards
    assert shard.renewed is not None
    counts = []
    for update in range(60):
        trainer.updates = update
        chosen, _ = trainer._chosen(shard, update)
        assert len(chosen) == 8
        assert len({id(each) for each in chosen}) == 8
        counts.append(names(chosen).count("random"))
        assert all(number in shard.renewed.source.held(update) for number in shard.renewed.known())
    assert 0.15 < sum(counts) / (8 * 60) < 0.35
    assert min(shard.renewed.known()) > 40


@pytest.mark.parametrize(("stay", "share", "random"), [(0, 0.0, 8), (12, 1.0, 8), (12, 0.0, 0)])
def test_without_others_or_with_all_the_share_every_problem_is_random(stay: int, share: float, random: int) -> None:
    trainer = trainer_of(stay=stay, share=share)
    chosen, _ = trainer._chosen(trainer.shards[0], 0)
    assert names(chosen).count("random") == random
    assert len(chosen) == 8


def test_problems_that_stay_are_drawn_as_ever_where_there_are_no_random_ones() -> None:
    with_world, without = trainer_of(stay=12, share=0.0), trainer_of(stay=12, share=0.0)
    without.shards[0].renewed = None
    both = [trainer._chosen(trainer.shards[0], 0)[0] for trainer in (without, with_world)]
    assert len(both[0]) == len(both[1]) == 8
    assert without.shards[0].known().keys() == {*range(12)}


def test_what_was_found_of_a_random_problem_is_kept_while_it_is_held() -> None:
    trainer = trainer_of(stay=1, share=1.0)
    trainer.imitation = Imitation(simulations=10)
    trainer.update()
    tensors, counters = trainer.state()
    other = trainer_of(stay=1, share=1.0)
    other.restore(tensors, counters)
    kept, found = other.shards[0].known(), trainer.shards[0].known()
    values = {
        n: each.prepared.incumbent.value for n, each in found.items() if each.prepared.incumbent.placement is not None
    }
    assert len(values) > 4, "of most of the eight something fits"
    assert min(values) > 0
    assert {number: kept[number].prepared.incumbent.value for number in values} == values
    stays = PpoTrainer(SequentialPolicy.new(NETWORK, 0), [each.prepared.problem for each in trainer.problems], Ppo(), 0)
    with pytest.raises(InputError, match="written by a run that had random problems"):
        stays.restore(tensors, counters)


def test_a_baseline_over_updates_needs_problems_that_stay() -> None:
    with pytest.raises(InputError, match=r"a moving average is of problems that stay; set world\.problems to 0"):
        trainer_of(stay=1, share=0.5, baseline="moving_average")


def test_placers_that_learn_episode_by_episode_take_no_random_problems() -> None:
    with pytest.raises(InputError, match=r"placer 'placeto' learns from problems that stay; set world\.problems to 0"):
        Recipe(placer="placeto", network="placeto", problems=ProblemSet(world=TINY))


def test_a_world_is_written_into_recipes_and_may_be_changed_by_key(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.to_toml())
    assert load_recipe(str(path)) == RECIPE
    changed = load_recipe(str(path), ["problems.world.problems=9", "problems.world.held_out=[chain]"])
    assert (changed.problems.world.problems, changed.problems.world.held_out) == (9, ("chain",))
    assert ProblemSet(world=TINY).families == ()
    with pytest.raises(InputError, match="'fann'"):
        load_recipe(str(path), "problems.world.held_out=[fann]")


def test_seeds_of_a_world_alone_are_trained_and_described(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.to_toml())
    changes = ["ppo.updates=1", "imitation.updates=0", "imitation.simulations=0", "imitation.weight=0"]
    done = placelab.train(str(path), out=tmp_path / "run", seeds=2, set=changes)
    assert isinstance(done, Trained)
    assert not torch.equal(weights(done.placers[0]), weights(done.placers[1]))
    folder = tmp_path / "run-seed1"
    card = model_card(load_meta(folder), load_recipe(str(folder / "config.toml")), folder)
    assert "- Trained on random problems (`training/problems/random/`), 6 at a time and 1.5 renewed per update" in card
    assert "Held out: fan, tiles." in card
    assert "tied into" not in card
