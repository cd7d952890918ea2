"""Placeto's environment: visit each unit of a graph once, and move it to the device of your choice.

Addanki et al., NeurIPS 2019, section 3: the episode starts from some placement; the state shows the graph, the current
placement and the current unit; the action is a device for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from envs.cost_models import CostModel
from envs.observations import Progress, find_observer, room_for
from envs.rewards import find_reward
from envs.simulator import Outcome
from envs.stage import RENDERING, Scene, Stage, outcome_info, render
from graphs.by_name import unknown
from graphs.cluster import GIB, Cluster
from graphs.errors import InputError
from graphs.op_graph import Bools, Ints, OpGraph
from graphs.problem import Problem

STARTS = ("random", "single")
ORDERS = ("topological", "random")


class PlacetoEnv(gym.Env[Any, Any]):
    """One episode visits each unit of one problem once; the action is the device of the current unit.

    - `problems`: One problem or several, of any sizes but with equally many devices; each reset draws one.
    - `graph`: Instead of problems: a graph or several, each an object or a name.
    - `cluster`: The cluster of these graphs, an object or a name.
    - `obs`: "ids", "dict" or "graph" (see `envs.observations`).
    - `reward`: "improvement", "terminal" or "square_root" (see `envs.rewards`).
    - `start`: The placement before the first step: "random", or "single" with all on the fastest device.
    - `order`: The order of the visits: "topological", or "random" anew in each episode.
    - `memory_gib`: Threshold M of the memory penalty, per device; the smallest device's memory unless given.
    - `max_units`: Pad observations to so many units, to leave room for larger graphs; the largest graph's unless given.
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
        reward: str = "improvement",
        start: str = "random",
        order: str = "topological",
        memory_gib: float | None = None,
        max_units: int | None = None,
        cost_model: CostModel | None = None,
        priority: str = "fifo",
        render_mode: str | None = None,
    ) -> None:
        for what, given, known in (("start", start, STARTS), ("order", order, ORDERS)):
            if given not in known:
                raise InputError(unknown(what, given, known))
        self._stage = Stage(problems, graph, cluster, cost_model, priority)
        self._observer = find_observer(obs, self._stage, max_units)
        self._memory_bytes = None if memory_gib is None else memory_gib * GIB
        self._reward_name, self._start, self._order = reward, start, order
        self.max_units = room_for(self._stage, max_units)
        self.render_mode = render_mode
        self.observation_space = self._observer.space
        self.action_space = gym.spaces.Discrete(self._stage.devices)
        self._visits: Ints = np.zeros(0, np.int64)  # (units,) the order of this episode
        self._step = 0
        self._set_reward(self._stage.scenes[0])

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
        if self._start == "random":
            placement = self.np_random.integers(0, self._stage.devices, units)
        else:
            placement = np.full(units, scene.fastest_device())
        self._visits = self.np_random.permutation(units) if self._order == "random" else scene.order
        self._step = 0
        self._set_reward(scene)
        self._progress = Progress(index, scene, placement, np.zeros(units, np.bool_), int(self._visits[0]))
        self._outcome = scene.simulator.run(placement)
        return self._observer.observe(self._progress), outcome_info(scene, self._outcome)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Put the current unit on a device and go on to the next one."""
        progress = self._progress
        if not self.action_space.contains(action):
            raise InputError(f"the action is {action!r}; expected a device from 0 to {self._stage.devices - 1}")
        if self._step == len(self._visits):
            raise InputError("the episode has ended; call reset")
        progress.placement[progress.current] = action
        progress.visited[progress.current] = True
        self._step += 1
        last = self._step == len(self._visits)
        if not last:
            progress.current = int(self._visits[self._step])
        before, self._outcome = self._outcome, progress.scene.simulator.run(progress.placement)
        reward = self._reward(before, self._outcome, last)
        info = outcome_info(progress.scene, self._outcome)
        return self._observer.observe(progress), reward, last, False, info

    def action_masks(self) -> Bools:
        """(devices,) whether each device has room for the current unit's weights (sb3-contrib's convention)."""
        return self._progress.scene.allowed(self._progress.current)

    def render(self) -> Any:
        """The current placement's Gantt chart, in the form of the render mode."""
        return render(self._progress.scene, self._progress.placement, self.render_mode)

    @property
    def outcome(self) -> Outcome:
        """What the placement costs as it stands."""
        return self._outcome

    def _set_reward(self, scene: Scene) -> None:
        smallest = float(scene.problem.cluster.memory_bytes.min())
        memory_bytes = smallest if self._memory_bytes is None else self._memory_bytes
        self._reward = find_reward(self._reward_name, memory_bytes)
