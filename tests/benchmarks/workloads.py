"""What is timed: random graphs on Placeto's machine, captured graphs on P100s, and placements of both."""

from __future__ import annotations

import numpy as np

from graphs.cluster import Cluster, Device
from graphs.files.load import load_cluster, load_graph
from graphs.op_graph import Ints, OpGraph
from graphs.problem import Problem
from placers.metis import Metis
from tests.papers.placeto_simulator import BYTES_PER_SECOND, GAP_SECONDS, LAUNCH_SECONDS

DEVICES = 4
GROUPS = 64  # op groups of a captured graph


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


def captured(graph: str, devices: int = DEVICES) -> Problem:
    """A graph by its spec, its ops tied into op groups, on P100s."""
    return Problem(load_graph(graph, groups=GROUPS), load_cluster(f"p100:devices={devices}"))


def placements(units: int, plans: int, devices: int = DEVICES) -> Ints:
    """(plans, units) devices, drawn at random."""
    return np.random.default_rng(0).integers(0, devices, (plans, units))


def metis_placements(problem: Problem, plans: int) -> Ints:
    """(plans, units) devices: the partitions of METIS's runs with different seeds."""
    one_run = Metis(seeds=1)
    found = [one_run.place(problem, seed=seed, budget=0).plan.per_unit(problem) for seed in range(plans)]
    return np.array(found)
