"""Observations: the state of an episode as ids, as padded arrays, or as a graph.

- "ids": which problem, which placement, which unit is next: a hundred times smaller than the rest, for algorithms that
  store observations (Stable-Baselines3) and read the problem's features from a table of their own.
- "dict": padded, self-contained arrays.
- "graph": a `gymnasium.spaces.Graph`, of any size.

The last two show each unit by one of FEATURES: "published", what Placeto's paper names; "by_device", the same with
seconds on each device and bytes of weights; "device_free", a copy of the graph for each device, whose columns do not
depend on how many devices there are; "replacement", that of "by_device", and where a model runs that is placed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from envs.gym.problem_sampler import EnvironmentSettings, UnitSampler
from envs.prepared_problem import PreparedProblem
from envs.replacement.evaluator import replacement_of
from envs.replacement.running import stored_bytes
from graphs.foundation.by_name import unknown
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Ints

Rows = NDArray[np.float32]


@dataclass(eq=False)
class Progress:
    """Where an episode stands."""

    index: int  # of the problem among the environment's, or -1
    prepared: PreparedProblem
    placement: Ints  # (units,) device of each unit
    visited: Bools  # (units,)
    current: int  # the unit to be decided

    def copy(self) -> Progress:
        """The same state, which later steps leave alone."""
        return replace(self, placement=self.placement.copy(), visited=self.visited.copy())


class Ids:
    """Numbers alone, placements padded with -1; graphs that are not the environment's own cannot be shown."""

    def __init__(self, sampler: UnitSampler, _features: Features) -> None:
        self._units = max_units = sampler.max_units
        self._names = [each.problem.graph.name for each in sampler.problems]
        self.space: Space[Any] = spaces.Dict(
            {
                "problem": spaces.Box(0, max(len(sampler.problems) - 1, 1), (1,), np.int32),
                "placement": spaces.Box(-1, sampler.devices - 1, (max_units,), np.int32),
                "visited": spaces.Box(0, 1, (max_units,), np.int8),
                "current": spaces.Box(0, max(max_units - 1, 1), (1,), np.int32),
            }
        )

    def observe(self, progress: Progress) -> dict[str, Any]:
        """Arrays as the space describes them."""
        if progress.index < 0:
            raise InputError(
                f"graph {progress.prepared.problem.graph.name!r} has no id here; "
                f"give it to the environment in addition to {', '.join(self._names)}, or observe with obs='graph'"
            )
        return {
            "problem": np.array([progress.index], np.int32),
            "placement": _padded(progress.placement.astype(np.int32), self._units, -1),
            "visited": _padded(progress.visited.astype(np.int8), self._units, 0),
            "current": np.array([progress.current], np.int32),
        }


class Padded:
    """Features of every unit, row after row, and edges, padded to the largest problem's size; `exists` is the mask.

    Of several copies of the graph (features="device_free") each is padded; edges are those of one.
    """

    def __init__(self, sampler: UnitSampler, features: Features) -> None:
        self._units = max_units = sampler.max_units
        self._edges, self._features = max(sampler.edges, 1), features
        size = features.copies(sampler.devices) * max_units * features.columns(sampler.devices)
        self.space: Space[Any] = spaces.Dict(
            {
                "units": spaces.Box(0, 1, (size,), np.float32),
                "exists": spaces.Box(0, 1, (max_units,), np.int8),
                "producers": spaces.Box(-1, max(max_units - 1, 1), (self._edges,), np.int32),
                "consumers": spaces.Box(-1, max(max_units - 1, 1), (self._edges,), np.int32),
            }
        )

    def observe(self, progress: Progress) -> dict[str, Any]:
        """Arrays as the space describes them."""
        units, edges = len(progress.placement), progress.prepared.problem.units.edges
        if units > self._units or len(edges) > self._edges:
            raise InputError(
                f"graph {progress.prepared.problem.graph.name!r} has {units} units and {len(edges)} edges; "
                f"this environment has room for {self._units} and {self._edges}, obs='graph' for any number"
            )
        shown = self._features.of(progress)
        padded = np.zeros((shown.shape[0], self._units, shown.shape[2]), np.float32)
        padded[:, :units] = shown
        return {
            "units": padded.ravel(),
            "exists": _padded(np.ones(units, np.int8), self._units, 0),
            "producers": _padded(edges[:, 0].astype(np.int32), self._edges, -1),
            "consumers": _padded(edges[:, 1].astype(np.int32), self._edges, -1),
        }


class Graph:
    """Nodes are units, edges carry their share of the heaviest edge's bytes.

    With features="device_free" it holds a copy of the graph for each device, one after the other.
    """

    def __init__(self, sampler: UnitSampler, features: Features) -> None:
        self._features = features
        self.space: Space[Any] = spaces.Graph(
            spaces.Box(0, 1, (features.columns(sampler.devices),), np.float32), spaces.Box(0, 1, (1,), np.float32)
        )

    def observe(self, progress: Progress) -> spaces.GraphInstance:
        """A graph as the space describes it."""
        prepared = progress.prepared
        nodes = self._features.of(progress)
        copies, units, columns = nodes.shape
        edge_features = np.tile(prepared.edge_bytes[:, None].astype(np.float32), (copies, 1))
        edges = (prepared.problem.units.edges[None] + units * np.arange(copies)[:, None, None]).reshape(-1, 2)
        return spaces.GraphInstance(nodes.reshape(-1, columns), edge_features, edges)


Observer = Ids | Padded | Graph


@dataclass(frozen=True)
class Features:
    """One way to show units as numbers between 0 and 1."""

    of: Callable[[Progress], Rows]  # (copies, units, columns) float32
    per_device: int  # columns for each device
    others: int  # and for all together
    by_device: bool = False  # whether there is a copy of the graph for each device

    def columns(self, devices: int) -> int:
        """How many for a number of devices."""
        return self.per_device * devices + self.others

    def copies(self, devices: int) -> int:
        """Of the graph, for a number of devices."""
        return devices if self.by_device else 1


def find_observer(sampler: UnitSampler, settings: EnvironmentSettings) -> Observer:
    """The observer that the settings name. Raises InputError for an unknown one, or for too small a `max_units`."""
    if settings.obs not in _OBSERVERS:
        raise InputError(unknown("observation", settings.obs, _OBSERVERS))
    if settings.features not in FEATURES:
        raise InputError(unknown("features", settings.features, FEATURES))
    return _OBSERVERS[settings.obs](sampler, FEATURES[settings.features])


def by_device(progress: Progress) -> Rows:
    """(1, units, 2 devices + 4): seconds on each device, bytes sent, weights, device one-hot, visited, current."""
    return np.column_stack([progress.prepared.features, _state(progress)]).astype(np.float32)[None]


def published(progress: Progress) -> Rows:
    """(1, units, devices + 4): run time, output bytes, device one-hot, visited, current (Placeto, section 3).

    The run time is the mean over devices, which differ only here; what has a scale is a share of its column's largest.
    """
    features, devices = progress.prepared.features, len(progress.prepared.problem.cluster)
    seconds = features[:, :devices].mean(axis=1)
    columns = [seconds / max(float(seconds.max()), 1e-12), features[:, devices], _state(progress)]
    return np.column_stack(columns).astype(np.float32)[None]


def device_free(progress: Progress) -> Rows:
    """(devices, units, 6): seconds there, bytes sent, weights, whether it is there, visited, current (ours).

    This is what each device sees; a policy that scores devices by it, one by one, serves any number of them.
    """
    features, state, devices = progress.prepared.features, _state(progress), len(progress.prepared.problem.cluster)
    rows = np.empty((devices, len(state), 6), np.float32)
    rows[..., 0] = features[:, :devices].T
    rows[..., 1:3] = features[:, devices:]
    rows[..., 3] = state[:, :devices].T
    rows[..., 4:] = state[:, devices:]
    return rows


def replacement(progress: Progress) -> Rows:
    """(1, units, 3 devices + 5): those of `by_device`, where the unit runs, one-hot, and its bytes that would move.

    A unit whose device has left runs nowhere. Bytes are those of its weights and optimizer state, as a share of the
    largest. Raises InputError for a problem of which nothing is known to run.
    """
    problem = progress.prepared.problem
    evaluator = replacement_of(progress.prepared.evaluator, problem)
    runs = evaluator.running.placement[:, None] == np.arange(len(problem.cluster))
    moved = problem.units.weight_bytes(stored_bytes(problem))
    columns = [by_device(progress)[0], runs, moved / max(float(moved.max(initial=0.0)), 1e-12)]
    return np.column_stack(columns).astype(np.float32)[None]


def _state(progress: Progress) -> Bools:
    """(units, devices + 2) device one-hot, visited, current."""
    on_device = progress.placement[:, None] == np.arange(len(progress.prepared.problem.cluster))
    is_current = np.arange(len(progress.placement)) == progress.current
    return np.column_stack([on_device, progress.visited, is_current])


def _padded(values: np.ndarray, size: int, filler: int) -> np.ndarray:
    padded = np.full(size, filler, values.dtype)
    padded[: len(values)] = values
    return padded


FEATURES: dict[str, Features] = {
    "by_device": Features(by_device, 2, 4),
    "published": Features(published, 1, 4),
    "device_free": Features(device_free, 0, 6, by_device=True),
    "replacement": Features(replacement, 3, 5),
}
_OBSERVERS: dict[str, type[Observer]] = {"ids": Ids, "dict": Padded, "graph": Graph}
