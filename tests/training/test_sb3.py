"""Stock PPO of Stable-Baselines3 learns on graphs of several sizes, and moves to larger ones."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import CheckpointCallback

from envs.gym.iterative import PlacetoEnv
from envs.gym.pipeline_plans import PipelineEpisode
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.learned.placeto.policy import PlacetoPolicy
from placers.learned.placeto.states import Relatives
from tests.oracle.toys import random_graph, toy_cluster
from training.sb3 import GraphFeatures, MaskedPolicy, policy_kwargs


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


@pytest.mark.parametrize(("algorithm", "knobs"), [(PPO, {"batch_size": 32}), (A2C, {})])
def test_placeto_s_policy_trains_with_callbacks_saves_and_loads(
    algorithm: type[PPO | A2C], knobs: dict[str, Any], tmp_path: Path
) -> None:
    env = placeto(5, 9)
    kwargs = policy_kwargs(env, network="placeto", rounds=2)
    model = algorithm("MultiInputPolicy", env, policy_kwargs=kwargs, n_steps=32, seed=0, device="cpu", **knobs)
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    model.learn(64, callback=CheckpointCallback(save_freq=32, save_path=str(tmp_path), name_prefix="step"))
    changed = {name for name, value in model.policy.state_dict().items() if not torch.equal(before[name], value)}
    for part in ("encode.enter", "encode.down", "encode.up", "encode.pools.ancestors", "encode.pools.parallel"):
        assert any(name.startswith(f"features_extractor.{part}") for name in changed), part
    loaded = algorithm.load(tmp_path / "step_64_steps", env=env, device="cpu")
    observation, _ = env.reset(seed=3)
    assert model.predict(observation, deterministic=True) == loaded.predict(observation, deterministic=True)


def test_under_stable_baselines_it_is_the_same_policy() -> None:
    env = placeto(5, 9, 14)
    inner = env.unwrapped
    assert isinstance(inner, PlacetoEnv)
    ours = PlacetoPolicy.new("placeto:devices=3", seed=5)
    model = PPO("MultiInputPolicy", env, policy_kwargs=policy_kwargs(env, network="placeto"), n_steps=8, batch_size=8)
    theirs: Any = model.policy
    encoder, classifier = ours.network.encode.state_dict(), ours.network.classify
    theirs.features_extractor.encode.load_state_dict(encoder)
    for mine, other in zip(classifier, [*theirs.mlp_extractor.policy_net, theirs.action_net], strict=True):
        other.load_state_dict(mine.state_dict())
    rng = np.random.default_rng(0)
    relatives = [Relatives.of(each.problem) for each in inner.problems]
    observations, states = [], []
    for problem, steps in ((2, 7), (0, 0), (1, 8), (0, 4)):
        observation, _ = env.reset(seed=problem, options={"problem": problem})
        for _ in range(steps):
            observation, *_ = env.step(int(rng.integers(3)))
        observations.append(observation)
        states.append(inner.progress)
    together = {key: np.stack([each[key] for each in observations]) for key in observations[0]}
    tensors, _ = theirs.obs_to_tensor(together)
    seen = ours.stack(states, [relatives[state.index] for state in states])
    expected = ours.logits(seen).log_softmax(-1)
    torch.testing.assert_close(theirs.get_distribution(tensors).distribution.logits, expected)


def test_other_observations_and_networks_are_refused() -> None:
    with pytest.raises(InputError, match="unknown network 'placetto'; did you mean 'placeto'"):
        policy_kwargs(placeto(4), network="placetto")
    with pytest.raises(InputError, match="one unit at a time"):
        policy_kwargs(gym.make("envs:GDP-v0", problems=problems(4)), network="placeto")
    with pytest.raises(InputError, match="obs='ids'"):
        policy_kwargs(gym.make("envs:Placeto-v0", problems=problems(4), obs="dict"))


def test_a_masked_policy_draws_possible_actions_alone_and_learns(tmp_path: Path) -> None:
    env = gym.make("envs:PipelinePlan-v0", problems=problems(5, 9), layers=4, micro_batches=(1, 2), max_devices=4)
    model = PPO(MaskedPolicy, env, n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu")
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    with patch.object(PipelineEpisode, "take", autospec=True, side_effect=PipelineEpisode.take) as take:
        model.learn(192)
    assert take.call_count == 192
    assert not any(call.args[0].refused for call in take.call_args_list)
    changed = {name for name, value in model.policy.state_dict().items() if not torch.equal(before[name], value)}
    assert {"action_net.weight", "value_net.weight", "mlp_extractor.policy_net.0.weight"} <= changed
    model.save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", device="cpu")
    observation, _ = env.reset(seed=3)
    ended = False
    while not ended:
        action, _ = model.predict(observation, deterministic=True)
        assert action == loaded.predict(observation, deterministic=True)[0]
        tensors, _ = model.policy.obs_to_tensor(observation)
        shares: Any = model.policy.get_distribution(tensors).distribution
        assert (shares.probs[0] > 0).tolist() == observation["mask"].astype(bool).tolist()
        observation, _, ended, _, info = env.step(action)
    assert "refused" not in info
