"""Stock PPO of Stable-Baselines3 learns on graphs of several sizes, and moves to larger ones."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO

import envs  # noqa: F401 - registers the environments
from graphs.errors import InputError
from graphs.problem import Problem
from tests.oracle.toys import random_graph, toy_cluster
from training.sb3 import GraphFeatures, policy_kwargs


def problems(*sizes: int) -> list[Problem]:
    return [Problem(random_graph(size, size), toy_cluster(3)) for size in sizes]


def placeto(*sizes: int) -> gym.Env[Any, Any]:
    return gym.make("envs:Placeto-v0", problems=problems(*sizes))


def small_ppo(env: gym.Env[Any, Any]) -> PPO:
    kwargs = policy_kwargs(env, width=8, rounds=2)
    return PPO(
        "MultiInputPolicy", env, policy_kwargs=kwargs, n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu"
    )


def test_ppo_trains_predicts_saves_and_loads(tmp_path: Path) -> None:
    env = placeto(5, 9, 14)
    model = small_ppo(env)
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    model.learn(192)
    after = model.policy.state_dict()
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert "features_extractor.update.weight" in changed
    model.save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", env=env, device="cpu")
    observation, _ = env.reset(seed=3)
    action, _ = model.predict(observation, deterministic=True)
    again, _ = loaded.predict(observation, deterministic=True)
    assert env.action_space.contains(np.int64(action))
    assert action == again


def test_a_trained_policy_runs_on_larger_graphs() -> None:
    model = small_ppo(placeto(5, 9))
    larger = placeto(30, 12)
    moved = small_ppo(larger)
    moved.policy.load_state_dict(model.policy.state_dict())
    observation, _ = larger.reset(seed=0, options={"problem": 0})
    ended = False
    while not ended:
        action, _ = moved.predict(observation, deterministic=True)
        observation, _, ended, _, _ = larger.step(int(action))


def test_features_do_not_depend_on_padding() -> None:
    tight = gym.make("envs:Placeto-v0", problems=problems(6))
    padded = gym.make("envs:Placeto-v0", problems=problems(6, 20))
    features = []
    for env in (tight, padded):
        torch.manual_seed(0)
        space = env.observation_space
        assert isinstance(space, gym.spaces.Dict)
        extractor = GraphFeatures(space, **policy_kwargs(env)["features_extractor_kwargs"])
        observation, _ = env.reset(seed=0, options={"problem": 0})
        observation["placement"][:6] = [0, 1, 2, 0, 1, 2]
        features.append(extractor({key: torch.from_numpy(value)[None].float() for key, value in observation.items()}))
    assert features[0].shape == (1, 2 * 32 + 3)
    assert torch.allclose(features[0], features[1], atol=1e-6)


def test_other_observations_are_refused() -> None:
    with pytest.raises(InputError, match="obs='ids'"):
        policy_kwargs(gym.make("envs:Placeto-v0", problems=problems(4), obs="dict"))
