"""GDP's environment: place all units of a graph at once.

Zhou et al. 2019, section 3: one decision per graph, whose reward is -sqrt(step seconds), or -10 if it does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from envs.costs.costs import CostModel
from envs.gym.observations import Progress, find_observer, room_for
from envs.gym.problem_sampler import RENDERING, Scene, Stage, outcome_info, render
from envs.rewards import Penalty, load_reward
from graphs.cluster import Cluster
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Ints, OpGraph
from graphs.problem import Problem


class GdpEnv(gym.Env[Any, Any]):
    """One episode is one step: a device for every unit, padded to the largest graph; the padding is not read.

    - `problems`: One problem or several, of any sizes but with equally many devices; each reset draws one.
    - `graph`: Instead of problems: a graph or several, each an object or a name.
    - `cluster`: The cluster of these graphs, an object or a name.
    - `obs`: "ids", "dict" or "graph" (see `envs.gym.observations`); before the step all units are on the
      fastest device.
    - `features`: What "dict" and "graph" show of a unit: "by_device", "published" or "device_free".
    - `reward`: "square_root", "terminal", or one of your own, "my.py:build" (see `envs.rewards`).
    - `max_units`: Pad observations and actions to so many units; the largest graph's unless given.
    - `cost_model`: What ops cost; the roofline's seconds unless given.
    - `priority`: Order of the queues, as in `Simulator`.
    - `render_mode`: "ansi" for a Gantt chart in text, "rgb_array" for one in pixels.

    Raises InputError for wrong arguments. `info` carries `problem`, `step_seconds`, `peak_bytes` (devices,), `fits`.
    """

    metadata: dict[str, Any] = RENDERING

    def __init__(
        self,
        problems: Problem | Sequence[Problem] | None = None,
        *,
        graph: OpGraph | str | Sequence[OpGraph | str] | None = None,
        cluster: Cluster | str | None = None,
        obs: str = "ids",
        features: str = "by_device",
        reward: str = "square_root",
        max_units: int | None = None,
        cost_model: CostModel | None = None,
        priority: str = "fifo",
        render_mode: str | None = None,
    ) -> None:
        self._stage = Stage(problems, graph, cluster, cost_model, priority)
        self._observer = find_observer(obs, self._stage, max_units, features)
        self._reward = load_reward(reward)
        self.max_units = room_for(self._stage, max_units)
        self.render_mode = render_mode
        self.observation_space = self._observer.space
        self.action_space = gym.spaces.MultiDiscrete([self._stage.devices] * self.max_units)
        self._ended = True

    @property
    def scenes(self) -> list[Scene]:
        """The environment's problems, by the id that observations show."""
        return self._stage.scenes

    @property
    def placement(self) -> Ints:
        """(units,) the device of each unit as it stands."""
        return self._progress.placement.copy()

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; options may name its problem by {"problem": index} or {"graph": graph}."""
        super().reset(seed=seed)
        index, scene = self._stage.choose(self.np_random, options)
        units = scene.problem.graph.num_units
        if units > self.max_units:
            raise InputError(
                f"graph {scene.problem.graph.name!r} has {units} units, actions have room for {self.max_units}; "
                "make the environment with a larger max_units"
            )
        placement = np.full(units, scene.fastest_device())
        self._progress = Progress(index, scene, placement, np.zeros(units, np.bool_), 0)
        self._outcome = scene.simulator.run(placement)
        self._ended = False
        return self._observer.observe(self._progress), outcome_info(scene, self._outcome)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Place every unit; the episode ends."""
        progress = self._progress
        if not self.action_space.contains(np.asarray(action)):
            raise InputError(f"expected {self.max_units} devices from 0 to {self._stage.devices - 1}, got {action!r}")
        if self._ended:
            raise InputError("the episode has ended; call reset")
        progress.placement[:] = action[: len(progress.placement)]
        progress.visited[:] = True
        before, self._outcome = self._outcome, progress.scene.simulator.run(progress.placement)
        smallest = float(progress.scene.problem.cluster.memory_bytes.min())
        reward = self._reward(before, self._outcome, True, Penalty(smallest))
        self._ended = True
        info = outcome_info(progress.scene, self._outcome)
        return self._observer.observe(progress), reward, True, False, info

    def action_masks(self) -> Bools:
        """(max_units * devices,) whether each device has room for each unit's weights (sb3-contrib's convention)."""
        masks = np.ones((self.max_units, self._stage.devices), np.bool_)
        for unit in range(len(self._progress.placement)):
            masks[unit] = self._progress.scene.allowed(unit)
        return masks.ravel()

    def render(self) -> Any:
        """The current placement's Gantt chart, in the form of the render mode."""
        return render(self._progress.scene, self._progress.placement, self.render_mode)
