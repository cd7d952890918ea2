"""The stage of an environment: its problems made ready for many episodes, one of which is chosen at each reset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from envs.costs.costs import CostModel, load_cost_model, timed
from envs.simulation.simulator import Outcome, Simulator
from graphs.cluster import Cluster
from graphs.foundation.errors import InputError
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.op_graph import Bools, Floats, Ints, OpGraph
from graphs.problem import Problem

RENDERING: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 10}  # gymnasium's metadata


@dataclass(frozen=True, eq=False)
class Scene:
    """One problem made ready: its simulator, and what an observer needs of it."""

    problem: Problem
    simulator: Simulator
    order: Ints  # (units,) each unit by its first op in topological order
    features: Floats  # (units, devices + 2) seconds per device, bytes sent, bytes of weights; each between 0 and 1
    edges: Ints  # (edges, 2) producer unit, consumer unit; each pair of different units once
    edge_bytes: Floats  # (edges,) share of the heaviest edge
    can_hold: Bools  # (units, devices) whether the device has room for the unit's weights

    @classmethod
    def of(cls, problem: Problem, cost_model: CostModel | None = None, priority: str = "fifo") -> Scene:
        """Prepare a problem."""
        simulator = Simulator(problem, cost_model=cost_model, priority=priority)
        units, static = problem.units, problem.units.weight_bytes(problem.weight_state_bytes)
        seconds = units.summed(simulator.costs.op_seconds)
        features = np.column_stack([_of_largest(seconds), _of_largest(units.sent_bytes), _of_largest(static)])
        can_hold = static[:, None] <= problem.cluster.memory_bytes
        if problem.allowed is not None:
            can_hold = (can_hold | ~(can_hold & problem.allowed).any(axis=1, keepdims=True)) & problem.allowed
        return cls(problem, simulator, units.order, features, units.edges, _of_largest(units.edge_bytes), can_hold)

    def allowed(self, unit: int) -> Bools:
        """(devices,) where a unit's weights have room; everywhere if they have room nowhere."""
        allowed = self.can_hold[unit]
        return allowed.copy() if allowed.any() else np.ones_like(allowed)

    def fastest_device(self) -> int:
        """The device that would take the shortest to do everything."""
        return int(self.simulator.costs.op_seconds.sum(axis=0).argmin())


class Stage:
    """The scenes that an environment chooses from.

    Given as problems, or as a graph (or several) on one cluster, by object or by name. Raises InputError for
    neither or both, for problems that differ in their number of devices, as an action is a device, or for another
    objective than the step time, which is what rewards are made of.
    """

    def __init__(
        self,
        problems: Problem | Sequence[Problem] | None,
        graph: OpGraph | str | Path | Sequence[OpGraph | str | Path] | None,
        cluster: Cluster | str | Path | None,
        cost_model: CostModel | None,
        priority: str,
    ) -> None:
        cost_model = None if cost_model is None else load_cost_model(cost_model)
        self._cost_model, self._priority = cost_model, priority
        self.scenes = [Scene.of(p, cost_model, priority) for p in _problems(problems, graph, cluster, cost_model)]
        for scene in self.scenes:
            scene.problem.check_step_time("an environment", "a problem with the objective step-time")
        counts = {len(scene.problem.cluster) for scene in self.scenes}
        if len(counts) > 1:
            raise InputError(
                f"an environment's problems must have equally many devices, got {sorted(counts)}; "
                "make one environment for each number of devices"
            )
        self.devices = counts.pop()
        self.units = max(scene.problem.graph.num_units for scene in self.scenes)
        self.edges = max(len(scene.edges) for scene in self.scenes)
        limit_torch_threads()  # for the policies that decide in this environment

    def choose(self, rng: np.random.Generator, options: Mapping[str, Any] | None) -> tuple[int, Scene]:
        """The scene that the options of a reset ask for, {"problem": index} or {"graph": graph}, else a random one.

        A graph that is not among the environment's own has index -1 and stands on the first problem's cluster.
        """
        limit_torch_threads()  # torch may have been imported since
        options = options or {}
        strange = options.keys() - {"problem", "graph"}
        if strange:
            raise InputError(f"unknown reset option {min(strange)!r}; there are: problem, graph")
        if "graph" in options:
            return self._scene_of(options["graph"])
        index = options.get("problem", None)
        index = int(rng.integers(len(self.scenes))) if index is None else int(index)
        if not 0 <= index < len(self.scenes):
            raise InputError(f"there is no problem {index}; this environment has 0 to {len(self.scenes) - 1}")
        return index, self.scenes[index]

    def _scene_of(self, what: OpGraph | str) -> tuple[int, Scene]:
        known = {scene.problem.graph.name: index for index, scene in enumerate(self.scenes)}
        if isinstance(what, str) and what in known:
            return known[what], self.scenes[known[what]]
        first = self.scenes[0].problem
        graph = _load_graph(what)
        for index, scene in enumerate(self.scenes):
            if scene.problem.graph.fingerprint == graph.fingerprint:
                return index, scene
        problem = Problem(graph, first.cluster, first.optimizer)
        return -1, Scene.of(problem, self._cost_model, self._priority)


def outcome_info(scene: Scene, outcome: Outcome) -> dict[str, Any]:
    """What an environment tells beside the observation."""
    return {
        "problem": scene.problem.name,
        "step_seconds": outcome.step_seconds,
        "peak_bytes": outcome.peak_bytes,
        "fits": outcome.fits,
    }


def render(scene: Scene, placement: Ints, mode: str | None) -> Any:
    """The Gantt chart of a placement, (units,) devices, as text or pixels; None without a mode."""
    if mode is None:
        return None
    timeline = scene.simulator.timeline(placement)
    return timeline.draw() if mode == "ansi" else timeline.image()


def _problems(
    problems: Problem | Sequence[Problem] | None,
    graph: OpGraph | str | Path | Sequence[OpGraph | str | Path] | None,
    cluster: Cluster | str | Path | None,
    cost_model: CostModel | None,
) -> list[Problem]:
    if problems is not None and graph is None and cluster is None:
        found = [problems] if isinstance(problems, Problem) else list(problems)
    elif problems is None and graph is not None and cluster is not None:
        graphs = [graph] if isinstance(graph, OpGraph | str | Path) else list(graph)
        where = _load_cluster(cluster)
        found = [Problem(_load_graph(what), where) for what in graphs]
        found = [timed(problem) for problem in found] if cost_model is None else found
    else:
        raise InputError("an environment needs either problems=, or graph= and cluster=")
    if not found:
        raise InputError("an environment needs at least one problem")
    return found


def _load_graph(what: OpGraph | str | Path) -> OpGraph:
    if isinstance(what, OpGraph):
        return what
    from graphs.load import load_graph  # a graph's name may have to be captured: pay for that only if asked

    return load_graph(what)


def _load_cluster(what: Cluster | str | Path) -> Cluster:
    if isinstance(what, Cluster):
        return what
    from graphs.load import load_cluster

    return load_cluster(what)


def _of_largest(values: Floats) -> Floats:
    """Values >= 0 as shares of the largest (Placeto divides features by their column's maximum)."""
    largest = values.max(initial=0.0)
    return values / largest if largest > 0 else np.zeros_like(values)
