"""Known times of ops, looked up for a problem: what `recorded` and `profiled` have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from envs.costs.cost_models.roofline import Roofline
from graphs.cluster import Cluster
from graphs.foundation.by_name import unknown
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats, OpGraph
from graphs.problem import Problem

OTHERWISE = ("refuse", "roofline")
SHORTEST = 1e-9  # seconds; an op that takes no time at all would not be launched
Times = Callable[[OpGraph], Floats]  # graph -> (ops,) seconds, NaN where they are unknown


class OpCost(NamedTuple):
    """What a graph says of an op; ops of the same kind that say the same are taken to last equally long."""

    kind: str
    flops: float  # FLOP
    bytes_accessed: float


def op_costs(graph: OpGraph) -> list[OpCost]:
    """(ops,) what the graph says of each op."""
    return list(map(OpCost, graph.kinds, graph.flops.tolist(), graph.bytes_accessed.tolist()))


def is_free(graph: OpGraph) -> Bools:
    """(ops,) whether each op neither computes nor reads, as a part of a tensor: nothing needs to be known of it."""
    free: Bools = (graph.flops == 0) & (graph.bytes_accessed == 0)
    return free


def known_seconds(
    problem: Problem,
    times: Mapping[str, Times],
    *,
    source: str,
    remedy: str,
    otherwise: str = "refuse",
    with_launch: bool = False,
) -> Floats:
    """(ops, devices) seconds from those on devices by name ("gpu:0") or by kind ("cpu", "gpu"); the name counts first.

    Times `with_launch` lose the cluster's `launch_seconds`, which the simulator adds after each op that takes time.
    `otherwise` says what becomes of unknown ones: with "roofline" they are the roofline's at peak. Raises InputError,
    naming what is missing in `source` and the remedy, with "refuse"; and for another `otherwise`.
    """
    if otherwise not in OTHERWISE:
        raise InputError(unknown("choice of otherwise", otherwise, OTHERWISE))
    graph, cluster = problem.graph, problem.cluster
    seconds = _by_device(graph, cluster, times, with_launch)
    if problem.allowed is not None:  # where an op may not run, no time is needed
        seconds[np.isnan(seconds) & ~problem.allowed[graph.units]] = 0.0
    if not np.isnan(seconds).any():
        return seconds
    if otherwise == "refuse":
        raise InputError(f"{_missing(graph, cluster, seconds, times, source)}; {remedy}")
    return np.where(np.isnan(seconds), Roofline().seconds(graph, cluster), seconds)


def _by_device(graph: OpGraph, cluster: Cluster, times: Mapping[str, Times], with_launch: bool) -> Floats:
    seconds = np.full((len(graph), len(cluster)), np.nan)
    named = {key for device in cluster.devices for key in (device.kind, device.name)}
    of = {key: times[key](graph) for key in sorted(named & times.keys())}
    for column, device in enumerate(cluster.devices):
        taken = of.get(device.name, np.full(len(graph), np.nan))
        if device.kind in of:
            taken = np.where(np.isnan(taken), of[device.kind], taken)
        launched = np.where(taken == 0, 0.0, np.fmax(taken - device.launch_seconds, SHORTEST))
        seconds[:, column] = np.where(np.isnan(taken) | (not with_launch), taken, launched)
    return seconds


def _missing(graph: OpGraph, cluster: Cluster, seconds: Floats, times: Mapping[str, Times], source: str) -> str:
    column = int(np.isnan(seconds).any(axis=0).argmax())
    device, kind = cluster.devices[column], cluster.devices[column].kind
    if not {device.name, kind} & times.keys():
        known = ", ".join(f"{each!r}" for each in sorted(times)) or "none"
        return f"{source} holds no times on {kind!r} devices, of which {cluster.name!r} has some; it knows {known}"
    ops = np.flatnonzero(np.isnan(seconds[:, column]))
    examples = [f"{graph.names[op]!r} ({graph.kinds[op]})" for op in ops[:3]]
    return (
        f"{source} holds no time on {kind!r} devices for {len(ops)} of the {len(graph)} ops of {graph.name!r}: "
        f"{', '.join(examples)}{', ...' if len(ops) > len(examples) else ''}"
    )
