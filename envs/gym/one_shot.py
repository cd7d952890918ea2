"""GDP's environment: place all units of a graph at once.

Zhou et al. 2019, section 3: one decision per graph, whose reward is -sqrt(step seconds), or -10 if it does not fit.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import gymnasium as gym
import numpy as np

from envs.gym.environment import PlacementEnv
from envs.gym.observations import Progress
from envs.gym.problem_sampler import EnvironmentSettings, Keywords
from envs.rewards import Penalty, load_reward
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools
from graphs.problem import Problem


class GdpEnv(PlacementEnv):
    """One episode is one step: a device for every unit, padded to the largest graph; the padding is not read.

    Before the step all units are on the fastest device.

    - `problems`: One problem or several, of any sizes but with equally many devices; each reset draws one.
    - `reward`: "square_root", "terminal", or one of your own, "my.py:build" (see `envs.rewards`).
    - `settings`: The keywords that all environments take, `graph`, `cluster`, `obs`, ...: see
      `envs.gym.problem_sampler.EnvironmentSettings`; `max_units` pads actions, too.

    Raises InputError for wrong arguments. `info` carries `problem`, `step_seconds`, `peak_bytes` (devices,), `fits`.
    """

    def __init__(
        self, problems: Problem | Sequence[Problem] | None = None, *, reward: str = "square_root",
        **settings: Unpack[Keywords],
    ) -> None:  # fmt: skip
        self._reward = load_reward(reward)
        super().__init__(problems, EnvironmentSettings(**settings))
        self.action_space = gym.spaces.MultiDiscrete([self._sampler.devices] * self.max_units)
        self._ended = True

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; options may name its problem by {"problem": index} or {"graph": graph}."""
        super().reset(seed=seed)
        index, prepared = self._sampler.choose(self.np_random, options)
        units = len(prepared.problem.units)
        if units > self.max_units:
            raise InputError(
                f"graph {prepared.problem.graph.name!r} has {units} units, actions have room for {self.max_units}; "
                "make the environment with a larger max_units"
            )
        placement = np.full(units, prepared.fastest_device)
        self.progress = Progress(index, prepared, placement, np.zeros(units, np.bool_), 0)
        self._outcome = prepared.outcome(placement)
        self._ended = False
        return self.shown(self.progress, self._outcome)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Place every unit; the episode ends."""
        progress = self.progress
        if not self.action_space.contains(np.asarray(action)):
            raise InputError(f"expected {self.max_units} devices from 0 to {self._sampler.devices - 1}, got {action!r}")
        if self._ended:
            raise InputError("the episode has ended; call reset")
        progress.placement[:] = action[: len(progress.placement)]
        progress.visited[:] = True
        before, self._outcome = self._outcome, progress.prepared.outcome(progress.placement)
        smallest = float(progress.prepared.problem.cluster.memory_bytes.min())
        reward = self._reward(before, self._outcome, True, Penalty(smallest))
        self._ended = True
        observation, info = self.shown(progress, self._outcome)
        return observation, reward, True, False, info

    def action_masks(self) -> Bools:
        """(max_units * devices,) whether each device has room for each unit's weights (sb3-contrib's convention)."""
        masks = np.ones((self.max_units, self._sampler.devices), np.bool_)
        masks[: len(self.progress.placement)] = self.progress.prepared.has_room
        return masks.ravel()
