"""Known times of ops, collected for a problem: what `recorded` and `profiled` have in common."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from envs.costs.cost_models.roofline import Roofline
from graphs.foundation.by_name import unknown
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats, OpGraph
from graphs.problem import Problem

OTHERWISE = ("refuse", "roofline")
ANY = ""  # in place of a device's name or kind: times on any device
SHORTEST = 1e-9  # seconds; an op that takes no time at all would not be launched


class OpCost(NamedTuple):
    """What a graph says of an op; ops that are described alike are taken to last equally long."""

    kind: str
    flops: float  # FLOP
    bytes_accessed: float


def op_costs(graph: OpGraph) -> list[OpCost]:
    """(ops,) what the graph says of each op."""
    return list(map(OpCost, graph.kinds, graph.flops.tolist(), graph.bytes_accessed.tolist()))


def is_free(graph: OpGraph) -> Bools:
    """(ops,) whether each op neither computes nor reads, as a view does: its time need not be known."""
    free: Bools = (graph.flops == 0) & (graph.bytes_accessed == 0)
    return free


def known_seconds(
    problem: Problem, times: Mapping[str, Floats], *, source: str, remedy: str, otherwise: str = "refuse",
    with_launch: bool = False,
) -> Floats:  # fmt: skip
    """(ops, devices) seconds, given (ops,) seconds, NaN where unknown, on devices by kind ("gpu") or name ("gpu:0").

    Times by name count first, those for ANY device last. Times `with_launch` lose the cluster's `launch_seconds`, which
    the simulator adds after each op that takes time. With `otherwise="roofline"` unknown times are the roofline's at
    peak; with "refuse" they raise InputError, which names what is
    missing in `source` and the remedy, as does another `otherwise`.
    """
    if otherwise not in OTHERWISE:
        raise InputError(unknown("choice of otherwise", otherwise, OTHERWISE))
    graph, cluster = problem.graph, problem.cluster
    seconds = np.full((len(graph), len(cluster)), np.nan)
    for column, device in enumerate(cluster.devices):
        for known in (times[key] for key in (device.name, device.kind, ANY) if key in times):
            seconds[:, column] = np.where(np.isnan(seconds[:, column]), known, seconds[:, column])
        if with_launch:
            taken = seconds[:, column]
            seconds[:, column] = np.where(taken == 0, 0.0, np.maximum(taken - device.launch_seconds, SHORTEST))
    if problem.allowed is not None:  # where an op may not run, no time is needed
        seconds[np.isnan(seconds) & ~problem.allowed[graph.units]] = 0.0
    if not np.isnan(seconds).any():
        return seconds
    if otherwise == "refuse":
        raise InputError(f"{_missing(problem, seconds, times, source)}; {remedy}")
    return np.where(np.isnan(seconds), Roofline().costs(problem).op_seconds, seconds)


def _missing(problem: Problem, seconds: Floats, times: Mapping[str, Floats], source: str) -> str:
    graph, cluster = problem.graph, problem.cluster
    column = int(np.isnan(seconds).any(axis=0).argmax())
    device, kind = cluster.devices[column], cluster.devices[column].kind
    if not {device.name, kind, ANY} & times.keys():
        known = ", ".join(f"{each!r}" for each in sorted(times)) or "none"
        return f"{source} holds no times on {kind!r} devices, which {cluster.name!r} has; it knows {known}"
    ops = np.flatnonzero(np.isnan(seconds[:, column]))
    examples = [f"{graph.names[op]!r} ({graph.kinds[op]})" for op in ops[:3]]
    return (
        f"{source} holds no time on {kind!r} devices for {len(ops)} of the {len(graph)} ops of {graph.name!r}: "
        f"{', '.join(examples)}{', ...' if len(ops) > len(examples) else ''}"
    )
