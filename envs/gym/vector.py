"""Placeto's environment many times over: one step of each, simulated together, in the form of a Gymnasium vector.

    envs = gymnasium.make_vec("envs:Placeto-v0", num_envs=16, problems=problems)

It behaves as `gymnasium.vector.SyncVectorEnv` over as many environments would, and shares one set of simulators.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from envs.gym.iterative import Episode, PlacetoEnv
from envs.gym.observed_problem import RENDERING, ObservedProblem, render
from envs.simulation.simulator import Outcome
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats

Step = tuple[Any, Floats, Bools, Bools, dict[str, Any]]


class PlacetoVectorEnv(VectorEnv[Any, Any, Any]):
    """`num_envs` episodes of Placeto's MDP side by side, of graphs of any sizes; the keywords are PlacetoEnv's.

    An episode that has ended begins again at the next step, whose action and reward are void for it. Observations
    are stacked, those of obs="graph" in a tuple. With start="best" the episodes share the best placements. Raises
    InputError for wrong arguments.
    """

    def __init__(self, num_envs: int = 1, **keywords: Any) -> None:  # PlacetoEnv refuses a wrong keyword
        if num_envs < 1:
            raise InputError(f"num_envs is {num_envs}; expected 1 or more")
        self._env = PlacetoEnv(**keywords)
        self.num_envs = num_envs
        self.metadata = {**RENDERING, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.render_mode = self._env.render_mode
        self.single_observation_space = self._env.observation_space
        self.single_action_space = self._env.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rngs = [seeding.np_random()[0] for _ in range(num_envs)]
        self._episodes: list[Episode] = []

    @property
    def problems(self) -> list[ObservedProblem]:
        """The problems, by the id that observations show."""
        return self._env.problems

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin all episodes; a seed s gives them s, s + 1, ...; options are those of PlacetoEnv, for all of them."""
        if seed is not None:
            seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else list(seed)
            if len(seeds) != self.num_envs:
                raise InputError(f"got {len(seeds)} seeds for {self.num_envs} environments")
            self._rngs = [
                rng if s is None else seeding.np_random(s)[0] for s, rng in zip(seeds, self._rngs, strict=True)
            ]
            self._env.forget()
        self._episodes = [self._env.begin(rng, options) for rng in self._rngs]
        self._settle()
        return self._shown()

    def step(self, actions: Any) -> Step:
        """One step of each episode: (num_envs,) devices."""
        if not self._episodes:
            raise InputError("call reset before the first step")
        chosen = np.asarray(actions)
        if not self.action_space.contains(chosen):
            raise InputError(f"expected an action for each of the {self.num_envs} environments, got {actions!r}")
        for i, episode in enumerate(self._episodes):
            if episode.ended:
                self._episodes[i] = self._env.begin(self._rngs[i], None)
            else:
                episode.place(int(chosen[i]))
        rewards = self._settle()
        observations, infos = self._shown()
        ended = np.array([episode.ended for episode in self._episodes])
        return observations, rewards, ended, np.zeros(self.num_envs, np.bool_), infos

    def render(self) -> tuple[Any, ...] | None:
        """Each placement's Gantt chart, in the form of the render mode; None without one."""
        if self.render_mode is None:
            return None
        states = [episode.progress for episode in self._episodes]
        return tuple(render(progress.observed, progress.placement, self.render_mode) for progress in states)

    def action_masks(self) -> Bools:
        """(num_envs, devices) whether each device has room for the current unit's weights."""
        states = [episode.progress for episode in self._episodes]
        return np.stack([progress.observed.allowed(progress.current) for progress in states])

    def _settle(self) -> Floats:
        """(num_envs,) rewards, after a simulation of each episode's placement."""
        outcomes = simulate_together(self._episodes)
        pairs = zip(self._episodes, outcomes, strict=True)
        return np.array([self._env.settle(episode, outcome) for episode, outcome in pairs])

    def _shown(self) -> tuple[Any, dict[str, Any]]:
        """Observations and infos of all."""
        observations, infos = [], dict[str, Any]()
        for i, episode in enumerate(self._episodes):
            observation, info = self._env.shown(episode)
            observations.append(observation)
            infos = self._add_info(infos, info, i)
        if isinstance(self.single_observation_space, gym.spaces.Dict):
            keys = self.single_observation_space.spaces
            return {key: np.stack([observation[key] for observation in observations]) for key in keys}, infos
        return tuple(observations), infos


def simulate_together(episodes: Sequence[Episode]) -> list[Outcome]:
    """What each episode's placement costs: one call of the simulator for each of their problems."""
    of_problem: dict[ObservedProblem, list[int]] = defaultdict(list)
    for i, episode in enumerate(episodes):
        of_problem[episode.progress.observed].append(i)
    found: dict[int, Outcome] = {}
    for observed, members in of_problem.items():
        placements: NDArray[np.int64] = np.stack([episodes[i].progress.placement for i in members])
        outcomes = observed.simulator.run_batch(placements)
        for row, i in enumerate(members):
            seconds, fits = float(outcomes.step_seconds[row]), bool(outcomes.fits[row])
            found[i] = Outcome(seconds, outcomes.peak_bytes[row], fits)
    return [found[i] for i in range(len(episodes))]
