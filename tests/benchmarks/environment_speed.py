"""How many steps a second Placeto's environment takes, with the improvement reward."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from envs.gym.iterative import PlacetoEnv
from tests.benchmarks.figures import Figure, at_least, least_seconds, reported
from tests.benchmarks.workloads import DEVICES, problem

STEPS = 4_000


def measure(ops: int = 128) -> Iterator[Figure]:
    """Steps per second on one core, episodes' resets included."""
    rates = []
    for obs in ("ids", "dict"):
        env = PlacetoEnv(problem(ops), obs=obs, reward="improvement")
        actions = np.random.default_rng(0).integers(0, DEVICES, STEPS).tolist()
        rates.append(STEPS / least_seconds(partial(_play, env, actions))[0])
    yield at_least(20_000, f"environment, {ops} groups", rates[0], "steps/s")
    yield reported(f"environment with padded observations, {ops} groups", rates[1], "steps/s")


def _play(env: PlacetoEnv, actions: list[int]) -> None:
    env.reset(seed=0)
    for action in actions:
        if env.step(action)[2]:
            env.reset()
