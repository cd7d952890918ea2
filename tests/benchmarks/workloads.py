"""What is timed: random graphs on Placeto's machine, and placements drawn at random."""

from __future__ import annotations

import numpy as np

from graphs.cluster import Cluster, Device
from graphs.op_graph import Ints, OpGraph
from graphs.problem import Problem
from tests.papers.placeto_simulator import BYTES_PER_SECOND, GAP_SECONDS, LAUNCH_SECONDS

DEVICES = 4


def problem(ops: int) -> Problem:
    """Ops with one to three producers among the twenty before them, on devices with a multicast bus each."""
    rng = np.random.default_rng(ops)
    edges = [
        (producer, op)
        for op in range(1, ops)
        for producer in set(rng.integers(max(0, op - 20), op, rng.integers(1, 4)).tolist())
    ]
    graph = OpGraph(
        f"random{ops}", tuple(f"op{i}" for i in range(ops)), ("any",) * ops, rng.random(ops) * 1e-3, np.zeros(ops),
        rng.random(ops) * 1e6, np.array(edges),
    )  # fmt: skip
    device = Device("gpu", "gpu", 1.0, 1.0, 1e12, LAUNCH_SECONDS)
    cluster = Cluster.uniform(
        "placeto", device, DEVICES, latency=0.0, bandwidth=BYTES_PER_SECOND, shared_out=True, gap=GAP_SECONDS,
        multicast=True,
    )  # fmt: skip
    return Problem(graph, cluster)


def placements(ops: int, plans: int) -> Ints:
    """(plans, ops) devices, all different."""
    return np.random.default_rng(0).integers(0, DEVICES, (plans, ops))
