"""Which part of one of Placeto's training steps is the environment's: episodes, simulations and features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace

from envs.gym.iterative import Episode
from envs.gym.observations import FEATURES
from envs.gym.vector import simulate_together
from graphs.files.load import load_cluster, load_graph
from graphs.files.splits import split
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.learned.placeto.policy import PlacetoPolicy
from placers.learned.placeto.states import Relatives, States
from tests.benchmarks.figures import Figure, at_most, least_seconds
from training.learning.reinforce import ReinforceTrainer
from training.recipe import load_recipe


def measure(sizes: Sequence[int] = (64, 128), graphs: Sequence[OpGraph | str] | None = None) -> Iterator[Figure]:
    """The environment's part of the wall time of the recipe's updates, over a graph of each of its families."""
    recipe = load_recipe("placeto")
    graphs = graphs or [split([family], "test")[0] for family in recipe.problems.families]
    loaded = [load_graph(graph) for graph in graphs]
    cluster = load_cluster(recipe.problems.clusters[0])
    for groups in sizes:
        problems = [Problem(load_graph(graph, groups=groups), cluster) for graph in loaded]
        settings = replace(recipe.reinforce, problems_per_update=len(problems))
        policy = PlacetoPolicy.new(recipe.network, seed=0)
        trainer = ReinforceTrainer(policy, problems, settings)
        alone, whole = least_seconds(partial(_environment, trainer, policy.shape.features), trainer.update, rounds=3)
        yield at_most(20, f"environment's part of a Placeto training step, {groups} groups", 100 * alone / whole, "%")


def _environment(trainer: ReinforceTrainer[Relatives, States], shown: str) -> None:
    """What an update asks of the environment, with drawn actions; features are built to act and again to learn."""
    features = FEATURES[shown]
    rng = np.random.default_rng(0)
    episodes = [trainer.mdp.begin(index, each.prepared, rng) for index, each in enumerate(trainer.problems)]
    _settle(trainer, episodes)
    while living := [episode for episode in episodes if not episode.ended]:
        for episode in living:
            state = episode.progress.copy()
            for _ in ("to act", "to learn"):
                features.of(state)
            episode.place(int(rng.integers(len(state.prepared.problem.cluster))))
        _settle(trainer, living)


def _settle(trainer: ReinforceTrainer[Relatives, States], episodes: Sequence[Episode]) -> None:
    """Simulate the episodes' placements, note them, and pay."""
    for episode, outcome in zip(episodes, simulate_together(episodes), strict=True):
        trainer.note(episode.progress.index, episode.progress.placement, outcome)
        episode.settle(outcome)
