"""The environments by name, one episode at a time or many side by side."""

import inspect
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_type_hints, overload

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import VectorEnv

from graphs.foundation.by_name import unknown
from graphs.foundation.errors import InputError
from graphs.problem import Problem


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
    class in `envs.gym`. Raises InputError for an unknown name or setting, for a number of environments that is none,
    and as the environment does.
    """
    short, known = str(name).removeprefix("envs:"), environments()
    if short not in known:
        raise InputError(unknown("environment", short, known))
    if num_envs is not None and (not isinstance(num_envs, int) or isinstance(num_envs, bool) or num_envs < 1):
        raise InputError(
            f"num_envs is {num_envs!r}; expected 1 or more environments side by side, or None for one alone"
        )
    if strange := [setting for setting in settings if setting not in settings_of(short)]:
        raise InputError(unknown(f"setting of {short}", strange[0], settings_of(short)))
    given: dict[str, Any] = settings if problems is None else {"problems": problems, **settings}
    if num_envs is None:
        return gym.make(f"envs:{short}", **given)
    kind: Literal["sync", "vector_entry_point"] = "vector_entry_point" if gym.spec(short).vector_entry_point else "sync"
    return gym.make_vec(f"envs:{short}", num_envs=num_envs, vectorization_mode=kind, **given)


def environments() -> tuple[str, ...]:
    """The names under which `envs` registers environments."""
    return tuple(name for name, spec in gym.registry.items() if str(spec.entry_point).startswith("envs.gym."))


def settings_of(name: str) -> tuple[str, ...]:
    """The keywords that an environment takes: those of its class, and those that it shares with others."""
    begins = load_env_creator(str(gym.spec(name).entry_point)).__init__  # type: ignore[misc]
    hints = get_type_hints(begins)
    (shared,) = get_args(hints.pop("settings"))
    own = [each.name for each in inspect.signature(begins).parameters.values() if each.kind is each.KEYWORD_ONLY]
    return (*own, *shared.__annotations__)
