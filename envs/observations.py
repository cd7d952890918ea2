"""What a decider sees: the same state of an episode as ids, as padded arrays, or as a graph.

- "ids": which problem, which placement, which unit is next: a hundred times smaller than the rest, for algorithms that
  store observations (Stable-Baselines3) and read the problem's features from a table of their own.
- "dict": padded, self-contained arrays.
- "graph": a `gymnasium.spaces.Graph`, of any size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from gymnasium import Space, spaces

from envs.stage import Scene, Stage
from graphs.by_name import unknown
from graphs.errors import InputError
from graphs.op_graph import Bools, Ints


@dataclass(eq=False)
class Progress:
    """Where an episode stands."""

    index: int  # of the scene among the environment's, or -1
    scene: Scene
    placement: Ints  # (units,) device of each unit
    visited: Bools  # (units,)
    current: int  # the unit to be decided


class Observer(Protocol):
    """One way to show an episode."""

    space: Space[Any]

    def observe(self, progress: Progress) -> Any:
        """An element of the space. Raises InputError for a graph that cannot be shown in it."""
        ...


class Ids:
    """Numbers alone, placements padded with -1; graphs that are not the environment's own cannot be shown."""

    def __init__(self, stage: Stage, max_units: int) -> None:
        self._units = max_units
        self._names = [scene.problem.graph.name for scene in stage.scenes]
        self.space: Space[Any] = spaces.Dict(
            {
                "problem": spaces.Box(0, max(len(stage.scenes) - 1, 1), (1,), np.int32),
                "placement": spaces.Box(-1, stage.devices - 1, (max_units,), np.int32),
                "visited": spaces.Box(0, 1, (max_units,), np.int8),
                "current": spaces.Box(0, max(max_units - 1, 1), (1,), np.int32),
            }
        )

    def observe(self, progress: Progress) -> dict[str, Any]:
        """Arrays as the space describes them."""
        if progress.index < 0:
            raise InputError(
                f"graph {progress.scene.problem.graph.name!r} has no id here; "
                f"give it to the environment beside {', '.join(self._names)}, or observe with obs='graph'"
            )
        return {
            "problem": np.array([progress.index], np.int32),
            "placement": _padded(progress.placement.astype(np.int32), self._units, -1),
            "visited": _padded(progress.visited.astype(np.int8), self._units, 0),
            "current": np.array([progress.current], np.int32),
        }


class Padded:
    """Features of every unit, row after row, and edges, padded to the largest problem's size."""

    def __init__(self, stage: Stage, max_units: int) -> None:
        self._units, self._edges = max_units, max(stage.edges, 1)
        self.space: Space[Any] = spaces.Dict(
            {
                "units": spaces.Box(0, 1, (max_units * _width(stage),), np.float32),
                "exists": spaces.Box(0, 1, (max_units,), np.int8),
                "producers": spaces.Box(-1, max(max_units - 1, 1), (self._edges,), np.int32),
                "consumers": spaces.Box(-1, max(max_units - 1, 1), (self._edges,), np.int32),
            }
        )

    def observe(self, progress: Progress) -> dict[str, Any]:
        """Arrays as the space describes them."""
        features, edges = unit_features(progress), progress.scene.edges
        if len(features) > self._units or len(edges) > self._edges:
            raise InputError(
                f"graph {progress.scene.problem.graph.name!r} has {len(features)} units and {len(edges)} edges; "
                f"this environment has room for {self._units} and {self._edges}, obs='graph' for any number"
            )
        return {
            "units": _padded(features, self._units, 0).ravel(),
            "exists": _padded(np.ones(len(features), np.int8), self._units, 0),
            "producers": _padded(edges[:, 0].astype(np.int32), self._edges, -1),
            "consumers": _padded(edges[:, 1].astype(np.int32), self._edges, -1),
        }


class Graph:
    """Nodes are units, edges carry their share of the heaviest edge's bytes."""

    def __init__(self, stage: Stage, max_units: int) -> None:
        del max_units  # any number
        self.space: Space[Any] = spaces.Graph(
            spaces.Box(0, 1, (_width(stage),), np.float32), spaces.Box(0, 1, (1,), np.float32)
        )

    def observe(self, progress: Progress) -> spaces.GraphInstance:
        """A graph as the space describes it."""
        scene = progress.scene
        edge_features = scene.edge_bytes[:, None].astype(np.float32)
        return spaces.GraphInstance(unit_features(progress), edge_features, scene.edges.copy())


def find_observer(name: str, stage: Stage, max_units: int | None) -> Observer:
    """The observer of that name. Raises InputError for an unknown one, or for `max_units` that is too small."""
    if name not in _OBSERVERS:
        raise InputError(unknown("observation", name, _OBSERVERS))
    return _OBSERVERS[name](stage, room_for(stage, max_units))


def room_for(stage: Stage, max_units: int | None) -> int:
    """How many units observations and actions are padded to. Raises InputError if the largest problem has more."""
    if max_units is not None and max_units < stage.units:
        raise InputError(f"max_units is {max_units}, but the largest graph has {stage.units} units")
    return max_units or stage.units


def unit_features(progress: Progress) -> np.ndarray:
    """(units, 2 devices + 4) float32 in 0..1: the scene's features, the device one-hot, visited, current (Placeto)."""
    scene, units = progress.scene, np.arange(len(progress.placement))
    on_device = progress.placement[:, None] == np.arange(len(scene.problem.cluster))
    columns = [scene.features, on_device, progress.visited, units == progress.current]
    return np.column_stack(columns).astype(np.float32)


def _width(stage: Stage) -> int:
    return 2 * stage.devices + 4


def _padded(values: np.ndarray, size: int, filler: int) -> np.ndarray:
    padded = np.full((size, *values.shape[1:]), filler, values.dtype)
    padded[: len(values)] = values
    return padded


_OBSERVERS: dict[str, type[Ids | Padded | Graph]] = {"ids": Ids, "dict": Padded, "graph": Graph}
