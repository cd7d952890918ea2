"""Many episodes at once, in the form of a Gymnasium vector: one step of each, over one set of prepared problems.

    envs = gymnasium.make_vec("envs:Placeto-v0", num_envs=16, problems=problems)

It behaves as `gymnasium.vector.SyncVectorEnv` over as many environments would.
"""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from envs.gym.environment import RENDERING, render
from envs.gym.iterative import Episode, PlacetoEnv
from envs.gym.pipeline_plans import PipelineEpisode, PipelinePlanEnv
from envs.prepared_problem import PreparedProblem
from envs.simulation.simulator import Outcome
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats

Step = tuple[Any, Floats, Bools, Bools, dict[str, Any]]


class SteppedEpisode(Protocol):
    """An episode that its caller steps."""

    @property
    def ended(self) -> bool:
        """Whether no step is left."""
        ...


E = TypeVar("E", bound=SteppedEpisode)


class EpisodesVectorEnv(VectorEnv[Any, Any, Any], Generic[E]):
    """`num_envs` episodes side by side, of problems of any sizes.

    An episode that has ended begins again at the next step, whose action and reward are void for it. Observations
    are stacked, those that are graphs in a tuple. Raises InputError for wrong arguments.
    """

    def __init__(self, env: PlacetoEnv | PipelinePlanEnv, num_envs: int) -> None:
        if num_envs < 1:
            raise InputError(f"num_envs is {num_envs}; expected 1 or more")
        self.num_envs = num_envs
        self.metadata = {**RENDERING, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.render_mode = env.render_mode
        self.single_observation_space = env.observation_space
        self.single_action_space = env.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rngs = [seeding.np_random()[0] for _ in range(num_envs)]
        self._episodes: list[E] = []

    @abstractmethod
    def _begin(self, rng: np.random.Generator, options: Mapping[str, Any] | None) -> E:
        """An episode; the options are those of a reset."""

    @abstractmethod
    def _advance(self, episode: E, action: int) -> None:
        """Take one step of one episode."""

    @abstractmethod
    def _settled(self) -> Iterator[tuple[float, Any, dict[str, Any]]]:
        """Of each episode the reward of its latest step, 0 if it has taken none, observation and info."""

    def _seeded(self) -> None:
        """Forget what earlier episodes have left: equal seeds, equal episodes."""

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin all episodes; a seed s gives them s, s + 1, ...; options are the environment's, for all of them."""
        if seed is not None:
            seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else list(seed)
            if len(seeds) != self.num_envs:
                raise InputError(f"got {len(seeds)} seeds for {self.num_envs} environments; give one for each")
            self._rngs = [
                rng if s is None else seeding.np_random(s)[0] for s, rng in zip(seeds, self._rngs, strict=True)
            ]
            self._seeded()
        self._episodes = [self._begin(rng, options) for rng in self._rngs]
        _, observations, infos = self._settle()
        return observations, infos

    def step(self, actions: Any) -> Step:
        """One step of each episode: (num_envs,) actions."""
        if not self._episodes:
            raise InputError("call reset before the first step")
        chosen = np.asarray(actions)
        if not self.action_space.contains(chosen):
            raise InputError(f"expected an action for each of the {self.num_envs} environments, got {actions!r}")
        for i, episode in enumerate(self._episodes):
            if episode.ended:
                self._episodes[i] = self._begin(self._rngs[i], None)
            else:
                self._advance(episode, int(chosen[i]))
        rewards, observations, infos = self._settle()
        ended = np.array([episode.ended for episode in self._episodes])
        return observations, rewards, ended, np.zeros(self.num_envs, np.bool_), infos

    def _settle(self) -> tuple[Floats, Any, dict[str, Any]]:
        """(num_envs,) rewards; observations and infos of all."""
        rewards, observations, infos = np.empty(self.num_envs), [], dict[str, Any]()
        for i, (reward, observation, info) in enumerate(self._settled()):
            rewards[i] = reward
            observations.append(observation)
            infos = self._add_info(infos, info, i)
        space = self.single_observation_space
        if not isinstance(space, gym.spaces.Dict):
            return rewards, tuple(observations), infos
        return rewards, {key: np.stack([each[key] for each in observations]) for key in space.spaces}, infos


class PlacetoVectorEnv(EpisodesVectorEnv[Episode]):
    """Placeto's MDP many times over, simulated together; the keywords are PlacetoEnv's.

    With start="best" the episodes share the best placements.
    """

    def __init__(self, num_envs: int = 1, **keywords: Any) -> None:  # PlacetoEnv refuses a wrong keyword
        self._env = PlacetoEnv(**keywords)
        self.problems = self._env.problems  # by the id that observations show
        super().__init__(self._env, num_envs)

    def render(self) -> tuple[Any, ...] | None:
        """Each placement's Gantt chart, in the form of the render mode; None without one."""
        if self.render_mode is None:
            return None
        return tuple(render(episode.progress, self.render_mode) for episode in self._episodes)

    def action_masks(self) -> Bools:
        """(num_envs, devices) whether each device has room for the current unit's weights."""
        states = [episode.progress for episode in self._episodes]
        return np.stack([progress.prepared.has_room[progress.current] for progress in states])

    def _begin(self, rng: np.random.Generator, options: Mapping[str, Any] | None) -> Episode:
        return self._env.begin(rng, options)

    def _advance(self, episode: Episode, action: int) -> None:
        episode.place(action)

    def _settled(self) -> Iterator[tuple[float, Any, dict[str, Any]]]:
        for episode, outcome in zip(self._episodes, simulate_together(self._episodes), strict=True):
            yield self._env.settle(episode, outcome), *self._env.shown(episode.progress, outcome)

    def _seeded(self) -> None:
        self._env.mdp.best.clear()


class PipelinePlanVectorEnv(EpisodesVectorEnv[PipelineEpisode]):
    """Many pipelines at once, each step one decision about each; the keywords are PipelinePlanEnv's."""

    def __init__(self, num_envs: int = 1, **keywords: Any) -> None:  # PipelinePlanEnv refuses a wrong keyword
        self._env = PipelinePlanEnv(**keywords)
        self.problems = self._env.problems  # by the index that episodes have
        super().__init__(self._env, num_envs)

    def render(self) -> tuple[Any, ...] | None:
        """Each plan's Gantt chart, in the form of the render mode; None without one."""
        if self.render_mode is None:
            return None
        return tuple(episode.render(self.render_mode) for episode in self._episodes)

    def action_masks(self) -> Bools:
        """(num_envs, actions) what is possible, and leaves room for weights if anything does."""
        return np.stack([episode.problem.with_room(episode.construction) for episode in self._episodes])

    def _begin(self, rng: np.random.Generator, options: Mapping[str, Any] | None) -> PipelineEpisode:
        return self._env.begin(rng, options)

    def _advance(self, episode: PipelineEpisode, action: int) -> None:
        episode.take(action)

    def _settled(self) -> Iterator[tuple[float, Any, dict[str, Any]]]:
        for episode in self._episodes:
            yield episode.paid, *self._env.shown(episode)


def simulate_together(episodes: Sequence[Episode]) -> list[Outcome]:
    """What each episode's placement costs: one call of the simulator for each of their problems."""
    of_problem: dict[PreparedProblem, list[int]] = defaultdict(list)
    for i, episode in enumerate(episodes):
        of_problem[episode.progress.prepared].append(i)
    found: dict[int, Outcome] = {}
    for prepared, members in of_problem.items():
        outcomes = prepared.outcomes(np.stack([episodes[i].progress.placement for i in members]))
        found |= {i: outcomes.of(row) for row, i in enumerate(members)}
    return [found[i] for i in range(len(episodes))]
