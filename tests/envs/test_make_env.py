"""Environments by name: single, side by side, and as Gymnasium makes them."""

from typing import Any

import gymnasium
import numpy as np
import pytest

import placelab
from envs.gym.make_env import environments, settings_of
from graphs.foundation.errors import InputError

GRAPH: dict[str, Any] = {"graph": "rnnlm:layers=1,steps=2", "cluster": "p100x2"}


@pytest.mark.parametrize("name", ["Placeto-v0", "GDP-v0", "PipelinePlan-v0"])
def test_one_by_name_is_gymnasiums(name: str) -> None:
    made, same = placelab.make_env(name, **GRAPH), gymnasium.make(f"envs:{name}", **GRAPH)
    assert type(made.unwrapped) is type(same.unwrapped)
    assert made.observation_space == same.observation_space
    first, again = (env.reset(seed=3)[1] for env in (made, same))
    assert first["step_seconds"] == again["step_seconds"]
    side_by_side = placelab.make_env(name, num_envs=3, **GRAPH)
    _, info = side_by_side.reset(seed=3)
    assert side_by_side.num_envs == 3
    assert np.shape(info["step_seconds"]) == (3,)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InputError, match="unknown environment 'Placeto-v1'; did you mean 'Placeto-v0'"):
        placelab.make_env("Placeto-v1", **GRAPH)


@pytest.mark.parametrize("count", [0, -2, 1.5, True, "4"])
def test_a_number_of_environments_that_is_none_is_refused(count: Any) -> None:
    with pytest.raises(InputError, match=f"num_envs is {count!r}; expected 1 or more environments side by side"):
        placelab.make_env("GDP-v0", num_envs=count, **GRAPH)


@pytest.mark.parametrize(("name", "num_envs"), [("Placeto-v0", 2), ("GDP-v0", None), ("PipelinePlan-v0", None)])
def test_an_unknown_setting_is_refused_by_name(name: str, num_envs: Any) -> None:
    sentence = f"unknown setting of {name} 'rewards'; did you mean 'reward'\\? there are: reward, "
    with pytest.raises(InputError, match=sentence):
        placelab.make_env(name, num_envs=num_envs, rewards="improvement", **GRAPH)


def test_settings_are_those_of_the_class_and_the_shared_ones() -> None:
    assert environments() == ("Placeto-v0", "GDP-v0", "Replacement-v0", "PipelinePlan-v0")
    shared = ("graph", "cluster", "cost_model", "runtime", "order", "objective", "render_mode")
    assert set(settings_of("GDP-v0")) == {"reward", *shared, "obs", "features", "max_units"}
    assert "obs" not in settings_of("PipelinePlan-v0")
