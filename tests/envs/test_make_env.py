"""Environments by name: single, side by side, and as Gymnasium makes them."""

from typing import Any

import gymnasium
import numpy as np
import pytest

import placelab
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
