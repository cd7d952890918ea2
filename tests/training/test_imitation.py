"""Imitation: what search found becomes likely, under the names that the decoder gives to equal devices."""

from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from envs.simulation.simulator import Simulator
from graphs.problem import Problem
from placers.learned.policy_meta import Meta
from placers.learned.sequential.layout import RolloutLayout, renamed_by_use
from placers.learned.sequential.policy import SequentialPolicy
from placers.learned.settings import Imitation, Ppo
from tests.oracle.toys import random_graph, toy_cluster, toy_graph
from training.learning.labels.demonstrations import Demonstrations
from training.learning.labels.improvement import improve_labels
from training.learning.ppo import PpoTrainer
from training.recipe import load_recipe
from training.runs.model_card import model_card

NETWORK = "sequential:width=16,heads=2,hidden=16,sage_layers=1"


def some_problems() -> list[Problem]:
    return [Problem(random_graph(12, seed=seed), toy_cluster(3, memory=1e4)) for seed in (1, 2)]


def demonstrated(trainer: Any) -> tuple[Any, Demonstrations[Any]]:
    batch = trainer.policy.stack([each.view for each in trainer.problems])
    return batch, Demonstrations.of(trainer.policy, batch, trainer.problems)


def likelihood_of(trainer: Any) -> float:
    batch, best = demonstrated(trainer)
    scores = trainer.policy.score(batch, best.action)
    return float(best.likelihood(scores.log_probability[:, 0], scores.mask).detach())


def test_a_search_leaves_the_best_placement_with_each_problem() -> None:
    trainer = PpoTrainer(SequentialPolicy.new(NETWORK, 0), some_problems(), Ppo(), 0)
    assert improve_labels(trainer.policy, trainer.problems, Imitation(simulations=50), seed=0) == 100
    for known in trainer.problems:
        assert known.prepared.incumbent.placement is not None
        again = Simulator(known.prepared.problem).run(known.prepared.incumbent.placement)
        assert again.step_seconds == known.prepared.incumbent.value


def test_renaming_equal_devices_changes_no_step_time_and_takes_them_in_order() -> None:
    problem = Problem(random_graph(15, seed=3), toy_cluster(4))
    simulator = Simulator(problem)
    layout = RolloutLayout.of(problem, simulator.costs)
    for seed in range(5):
        placement = np.random.default_rng(seed).integers(4, size=15)
        renamed = renamed_by_use(layout, placement)
        assert simulator.run(renamed).step_seconds == simulator.run(placement).step_seconds
        devices, first_use = np.unique(renamed[layout.order], return_index=True)
        assert devices.tolist() == list(range(len(devices)))
        assert (np.diff(first_use) > 0).all()


def test_what_is_imitated_becomes_the_policys_own_answer() -> None:
    policy = SequentialPolicy.new(NETWORK, 0)
    trainer = PpoTrainer(policy, some_problems(), Ppo(learning_rate=1e-2), 0, Imitation(simulations=50))
    likelihoods = [trainer.imitate() for _ in range(120)]
    assert trainer.simulations == 2 * 50, "each problem is searched once"
    assert likelihoods[-1] > -0.05 > likelihoods[0]
    devices = demonstrated(trainer)[1].action.devices
    for i, problem in enumerate(some_problems()):
        greedy = policy.decode(policy.stack([policy.view(problem)]), np.ones(1), np.full(1, 0.9), 0)[0][0]
        assert greedy.tolist() == devices[i, 0].tolist()


def test_imitation_in_ppo_pulls_towards_what_is_known() -> None:
    def likelihood_after(weight: float) -> float:
        settings, imitation = Ppo(updates=30, samples=4), Imitation(simulations=50, weight=weight)
        trainer = PpoTrainer(SequentialPolicy.new(NETWORK, 0), some_problems(), settings, 0, imitation)
        improve_labels(trainer.policy, trainer.problems, imitation, seed=0)
        for _ in range(15):
            trainer.update()
        return likelihood_of(trainer)

    assert likelihood_after(1.0) > likelihood_after(0.0)


def test_problems_of_which_nothing_is_known_teach_nothing() -> None:
    assert likelihood_of(PpoTrainer(SequentialPolicy.new(NETWORK, 0), some_problems(), Ppo(), 0)) == 0.0


def test_policies_of_one_class_do_not_share_what_they_see() -> None:
    chain = Problem(toy_graph([1, 1, 5, 1], [(0, 1), (0, 2), (1, 3), (2, 3)]), toy_cluster(2))
    seen = [
        PpoTrainer(SequentialPolicy.new(f"{NETWORK},order={order}", 0), [chain], Ppo(), 0).problems[0].view
        for order in ("longest_path", "topological")
    ]
    assert [layout.order.tolist() for _, layout, _ in seen] == [[0, 2, 1, 3], [0, 1, 2, 3]]


def test_the_model_card_says_what_was_learned_from_and_how() -> None:
    recipe = load_recipe("released")
    meta = Meta(placer="sequential", network=recipe.network, seed=3, updates=8000, simulations=1234567)
    recipe = replace(recipe, problems=replace(recipe.problems, unequal=0.4, forward=0.15, measured=0.0))
    card = model_card(meta, recipe, Path("some/folder"))
    searched_again = "Labels were searched again while it learned them, from its own samples on."
    assert f"simulations in all. {searched_again}\n- Trained on: " in card
    once = replace(recipe, imitation=replace(recipe.imitation, again=0))
    assert searched_again not in model_card(meta, once, Path("some/folder"))
    for sentence in (
        "First 600 updates of imitation of what search found, then 8,000 updates by PPO; 1,234,567 simulations",
        "amoebanet, bert, cifar10",
        "24, 48, 64, 96 or 160 groups, on p100:devices=2, p100:devices=3",
        "at random, 40% of the copies have unequal devices; 15% of the problems are forward passes alone.",
        "--placer sequential:checkpoint=some/folder",
    ):
        assert sentence in card
    assert not {"nasnet", "wavenet", "xlnet"} & set(recipe.problems.families)
