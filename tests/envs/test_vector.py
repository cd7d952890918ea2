"""The vector forms of environments: many single ones, over one set of prepared problems."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import SyncVectorEnv

from envs.gym.iterative import PlacetoEnv
from envs.gym.pipeline_plans import PipelinePlanEnv
from envs.gym.vector import PipelinePlanVectorEnv, PlacetoVectorEnv
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from tests.oracle.toys import Toy, random_graph, toy_cluster


@pytest.fixture
def problems() -> list[Problem]:
    """Three sizes on three devices."""
    return [Problem(random_graph(size, size), toy_cluster(3)) for size in (5, 9, 14)]


@pytest.mark.parametrize("knobs", [{"obs": "ids"}, {"obs": "dict", "features": "published"}, {"visits": "random"}])
def test_the_vector_form_is_many_single_ones(knobs: dict[str, Any], problems: list[Problem]) -> None:
    kwargs: dict[str, Any] = {"problems": problems, **knobs}
    ours = gym.make_vec("envs:Placeto-v0", num_envs=4, **kwargs)
    theirs = SyncVectorEnv([lambda: PlacetoEnv(**kwargs)] * 4)
    assert isinstance(ours, PlacetoVectorEnv)
    assert ours.observation_space == theirs.observation_space
    rng = np.random.default_rng(0)
    assert data_equivalence(ours.reset(seed=7), theirs.reset(seed=7))
    for _ in range(60):
        actions = rng.integers(0, 3, 4)
        told = ours.step(actions)
        assert data_equivalence(told, theirs.step(actions))
        assert ours.observation_space.contains(told[0])


def test_many_pipelines_at_once_are_many_single_ones(problems: list[Problem]) -> None:
    problems = [*problems, Problem(random_graph(7, 1), toy_cluster(2))]  # on fewer devices
    kwargs: dict[str, Any] = {"problems": problems, "layers": 6, "render_mode": "ansi"}
    ours = gym.make_vec("envs:PipelinePlan-v0", num_envs=3, **kwargs)
    theirs = SyncVectorEnv([lambda: PipelinePlanEnv(**kwargs)] * 3)
    assert isinstance(ours, PipelinePlanVectorEnv)
    assert ours.observation_space == theirs.observation_space
    rng = np.random.default_rng(0)
    observations, infos = ours.reset(seed=7)
    assert data_equivalence((observations, infos), theirs.reset(seed=7))
    ended = 0
    for number in range(60):
        masks = ours.action_masks()
        assert np.array_equal(masks, observations["mask"])
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])
        if number == 40:
            actions[:] = 0  # is refused but for first decisions
        told = ours.step(actions)
        assert data_equivalence(told, theirs.step(actions))
        observations, ended = told[0], ended + int(told[2].sum())
    assert ended > 6
    charts = ours.render()
    assert charts is not None
    assert len(charts) == 3
    assert all(chart.startswith("gpu:0") for chart in charts)
    assert PipelinePlanVectorEnv(2, problems=problems).render() is None


def test_the_vector_form_simulates_once_per_problem_and_step(problems: list[Problem]) -> None:
    env = PlacetoVectorEnv(8, problems=problems, obs="graph")
    observations, _ = env.reset(seed=0)
    assert [graph.nodes.shape[1] for graph in observations] == [10] * 8
    calls = []
    for each in env.problems:
        original = each.evaluator.run_batch
        each.evaluator.run_batch = lambda *args, original=original: calls.append(1) or original(*args)  # type: ignore
    env.step(np.zeros(8, np.int64))
    assert 1 <= len(calls) <= 3
    assert env.action_masks().shape == (8, 3)
    with pytest.raises(InputError, match="an action for each of the 8"):
        env.step(np.zeros(7, np.int64))
    with pytest.raises(InputError, match="2 seeds for 8"):
        env.reset(seed=[1, 2])
    with pytest.raises(InputError, match="call reset"):
        PlacetoVectorEnv(2, problems=problems).step(np.zeros(2, np.int64))


def test_a_seed_begins_afresh_where_episodes_start_from_the_best_placement(problems: list[Problem]) -> None:
    env = PlacetoVectorEnv(2, problems=problems[:1], start="best")
    first, _ = env.reset(seed=4)
    for device in (0, 1, 1, 0, 0):
        env.step(np.array([device, device]))
    assert data_equivalence(env.reset(seed=4)[0], first)


def test_the_vector_form_renders_each(four_ops_two_devices: Toy) -> None:
    charts, nothing = (
        PlacetoVectorEnv(2, problems=four_ops_two_devices.problem, render_mode=m) for m in ("ansi", None)
    )
    charts.reset(seed=0, options={"placement": four_ops_two_devices.best_placement})
    single = PlacetoEnv(four_ops_two_devices.problem, render_mode="ansi")
    single.reset(seed=0, options={"placement": four_ops_two_devices.best_placement})
    assert charts.render() == (single.render(),) * 2
    assert nothing.render() is None
