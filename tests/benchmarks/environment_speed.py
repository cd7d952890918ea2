"""How many steps a second Placeto's environment takes, with the improvement reward, and that over pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from envs.gym.iterative import PlacetoEnv
from envs.gym.pipeline_plans import PipelinePlanEnv
from graphs.files.load import load_cluster, load_graph
from graphs.problem import Problem
from tests.benchmarks.figures import Figure, at_least, least_seconds, reported
from tests.benchmarks.workloads import DEVICES, problem

STEPS = 4_000
EPISODES = 20  # of the environment over pipelines


def measure(
    ops: int = 128, captured: str = "transformer:layers=40,batch=32", steps: int = STEPS, episodes: int = EPISODES
) -> Iterator[Figure]:
    """Steps per second on one core, episodes' resets included."""
    yield from _placeto(ops, steps)
    yield from _pipelines(Problem(load_graph(captured), load_cluster(f"p100:devices={DEVICES}")), episodes)


def _placeto(ops: int, steps: int) -> Iterator[Figure]:
    rates = []
    for obs in ("ids", "dict"):
        env = PlacetoEnv(problem(ops), obs=obs, reward="improvement")
        actions = np.random.default_rng(0).integers(0, DEVICES, steps).tolist()
        rates.append(steps / least_seconds(partial(_play, env, actions))[0])
    yield at_least(20_000, f"environment, {ops} groups", rates[0], "steps/s")
    yield reported(f"environment with padded observations, {ops} groups", rates[1], "steps/s")


def _play(env: PlacetoEnv, actions: list[int]) -> None:
    env.reset(seed=0)
    for action in actions:
        if env.step(action)[2]:
            env.reset()


def _pipelines(captured: Problem, episodes: int) -> Iterator[Figure]:
    """Steps and whole plans per second at the grain of stages; actions are drawn from the mask."""
    env = PipelinePlanEnv(captured)
    steps = _construct(env, episodes)
    (seconds,) = least_seconds(partial(_construct, env, episodes), rounds=3)
    what = f"of an environment over pipelines, {len(captured.graph):,} ops on {DEVICES} devices"
    yield reported(f"steps {what}", steps / seconds, "steps/s")
    yield reported(f"plans {what}", episodes / seconds, "plans/s")


def _construct(env: PipelinePlanEnv, episodes: int) -> int:
    """How many steps it takes to make plans at random, the same ones each time."""
    rng, steps = np.random.default_rng(0), 0
    for _ in range(episodes):
        env.reset()
        ended = False
        while not ended:
            ended, steps = env.step(rng.choice(np.flatnonzero(env.action_masks())))[2], steps + 1
    return steps
