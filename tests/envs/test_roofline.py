"""What ops cost."""

import numpy as np

from envs.costs.cost_models.roofline import build
from graphs.cluster import Cluster, Device
from graphs.op_graph import OpGraph
from graphs.problem import Problem


def graph(flops: list[float], bytes_accessed: list[float]) -> OpGraph:
    ops = len(flops)
    names = tuple(f"op{i}" for i in range(ops))
    no_edges = np.zeros((0, 2), np.int64)
    return OpGraph("g", names, ("k",) * ops, np.array(flops), np.array(bytes_accessed), np.zeros(ops), no_edges)


def test_an_op_takes_the_longer_of_arithmetic_and_traffic() -> None:
    fast, slow = Device("fast", "gpu", 4.0, 2.0, 1.0), Device("slow", "cpu", 1.0, 2.0, 1.0)
    flat = np.ones((2, 2))
    cluster = Cluster("pair", (fast, slow), flat, flat, np.zeros((2, 2), np.int64))
    costs = build().costs(Problem(graph([8.0, 2.0, 0.0], [2.0, 8.0, 0.0]), cluster))
    assert costs.op_seconds.tolist() == [[2.0, 8.0], [4.0, 4.0], [0.0, 0.0]]
