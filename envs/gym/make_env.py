"""The environments by name, one episode at a time or many side by side."""

from collections.abc import Sequence
from typing import Any, Literal, overload

import gymnasium as gym
from gymnasium.vector import VectorEnv

from graphs.foundation.by_name import unknown
from graphs.foundation.errors import InputError
from graphs.problem import Problem

ENVIRONMENTS = ("Placeto-v0", "GDP-v0", "PipelinePlan-v0", "Replacement-v0")


@overload
def make_env(
    name: str, problems: Problem | Sequence[Problem] | None = None, *, num_envs: None = None, **settings: Any
) -> gym.Env[Any, Any]: ...


@overload
def make_env(
    name: str, problems: Problem | Sequence[Problem] | None = None, *, num_envs: int, **settings: Any
) -> VectorEnv[Any, Any, Any]: ...


def make_env(
    name: str, problems: Problem | Sequence[Problem] | None = None, *, num_envs: int | None = None, **settings: Any
) -> gym.Env[Any, Any] | VectorEnv[Any, Any, Any]:
    """An environment such as "Placeto-v0", of problems, or of a `graph` on a `cluster`.

    It is `gymnasium.make("envs:Placeto-v0", ...)`, or with `num_envs` as many episodes side by side,
    `gymnasium.make_vec(...)`: Placeto's and pipelines' are simulated together. What each takes besides is said by its
    class in `envs.gym`. Raises InputError for an unknown name, and as the environment does.
    """
    short = name.removeprefix("envs:")
    if short not in ENVIRONMENTS:
        raise InputError(unknown("environment", short, ENVIRONMENTS))
    given: dict[str, Any] = settings if problems is None else {"problems": problems, **settings}
    if num_envs is None:
        return gym.make(f"envs:{short}", **given)
    kind: Literal["sync", "vector_entry_point"] = "vector_entry_point" if gym.spec(short).vector_entry_point else "sync"
    return gym.make_vec(f"envs:{short}", num_envs=num_envs, vectorization_mode=kind, **given)
