"""Small problems with known answers, and random ones of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from envs.costs.costs import Costs
from envs.simulation.device_loads import Loads
from graphs.cluster import Cluster, Device
from graphs.op_graph import Floats, Ints, OpGraph
from graphs.problem import Problem


@dataclass(frozen=True, eq=False)
class Toy:
    """A problem whose best placement is known."""

    problem: Problem
    best_placement: tuple[int, ...]  # (units,)
    best_seconds: float


def four_ops_two_devices() -> Toy:
    """A diamond: one op, two of three seconds side by side, one op; a second to send an output.

    On one device it takes 8 s. With the right branch and the end on the other device, 6 s: nothing is faster.
    """
    graph = toy_graph([1, 3, 3, 1], [(0, 1), (0, 2), (1, 3), (2, 3)])
    return Toy(Problem(graph, toy_cluster(2)), (0, 0, 1, 1), 6.0)


def toy_graph(
    seconds: Sequence[float], edges: Sequence[tuple[int, int]], *, output_bytes: Sequence[float] | None = None,
    weights: Sequence[float] = (), weight_uses: Sequence[tuple[int, int]] = (), control: Sequence[bool] = (),
    group: Sequence[int] = (), name: str = "toy",
) -> OpGraph:  # fmt: skip
    """Ops a, b, c, ... of given seconds on a toy device, each with an output of one byte unless given."""
    ops = len(seconds)
    return OpGraph(
        name, tuple("abcdefghijklmnopqrstuvwxyz"[:ops]), ("toy",) * ops,
        flops=np.array(seconds, np.float64), bytes_accessed=np.zeros(ops),
        output_bytes=np.array(output_bytes if output_bytes is not None else [1] * ops, np.float64),
        edges=np.reshape(np.array(edges, np.int64), (-1, 2)), control=np.array(control, np.bool_),
        weights=np.array(weights, np.float64), weight_uses=np.reshape(np.array(weight_uses, np.int64), (-1, 2)),
        group=np.array(group, np.int64),
    )  # fmt: skip


def toy_cluster(
    devices: int, *, memory: float = 100.0, launch: float = 0.0, shared_out: bool = False, latency: float = 0.0,
    gap: float = 0.0, multicast: bool = False,
) -> Cluster:  # fmt: skip
    """Devices of one FLOP/s, links of one byte/s."""
    device = Device("toy", "gpu", 1.0, 1.0, memory, launch)
    return Cluster.uniform(
        f"toy{devices}", device, devices, latency=latency, bandwidth=1.0, shared_out=shared_out, gap=gap,
        multicast=multicast,
    )  # fmt: skip


def random_graph(ops: int, seed: int, *, weights: bool = True) -> OpGraph:
    """Ops with one to three producers among the twenty before them, whole seconds, and a weight each."""
    rng = np.random.default_rng(seed)
    edges = [
        (source, target)
        for target in range(1, ops)
        for source in set(rng.integers(max(0, target - 20), target, rng.integers(1, 4)).tolist())
    ]
    return OpGraph(
        f"random{ops}", tuple(f"op{i}" for i in range(ops)), ("any",) * ops, rng.integers(0, 5, ops).astype(float),
        np.zeros(ops), rng.integers(0, 4, ops).astype(float), np.reshape(np.array(edges, np.int64), (-1, 2)),
        weights=rng.integers(1, 4, ops).astype(float) if weights else np.zeros(0),
        weight_uses=np.stack([np.arange(ops), rng.integers(0, ops, ops)], 1) if weights else np.zeros((0, 2), np.int64),
    )  # fmt: skip


def device_loads(problem: Problem, placement: Sequence[int] | Ints, costs: Costs) -> Floats:
    """(devices,) seconds of work and transfers under a placement, (ops,)."""
    loads: Floats = Loads(problem, costs).on_devices(np.asarray(placement)[None])[0]
    return loads
