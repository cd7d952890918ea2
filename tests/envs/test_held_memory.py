"""What a placement holds on every device, without simulating it."""

import numpy as np

from envs.simulation.held_memory import HeldMemory
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from tests.oracle.toys import toy_cluster


def test_outputs_wait_for_backward_ops_that_read_them_and_not_for_those_that_only_run_later() -> None:
    """The gradient reads f, of 10 bytes, and the loss, of 1; g, of 100, only has to run before it; h stays forward."""
    graph = OpGraph(
        "held", ("f", "g", "h", "loss", "loss.grad"), ("toy",) * 5, np.ones(5), np.zeros(5),
        np.array([10.0, 100, 1000, 1, 7]), np.array([(0, 3), (2, 3), (0, 4), (3, 4), (1, 4)]),
        control=np.array([False, False, False, False, True]),
        phase=np.array([Phase.FORWARD] * 4 + [Phase.BACKWARD]), mirror=np.array([-1, -1, -1, -1, 3]),
    )  # fmt: skip
    held = HeldMemory.of(Problem(graph, toy_cluster(2)))
    together, apart = np.zeros(graph.num_units, np.int64), np.zeros(graph.num_units, np.int64)
    apart[graph.units[4]] = 1  # the loss and its gradient, which has a copy of f
    assert held.on_devices(together).tolist() == [10 + 1, 0]
    assert held.on_devices(apart).tolist() == [10, 10 + 1]
