"""What CUDA graphs keep between steps is in the simulated peak."""

from __future__ import annotations

import numpy as np
import pytest

from envs.simulation.simulator import Simulator
from graphs.files.load import load_cluster, load_graph
from graphs.problem import Problem
from graphs.runtime import runtime_of


@pytest.mark.parametrize("seed", [None, 0])
def test_graphs_keep_copies_and_what_they_are_given_and_gradients_twice(seed: int | None) -> None:
    graph = load_graph("rnnlm:layers=1,steps=2,hidden=8,batch=4,vocabulary=16")
    called, launched = (
        Problem(graph, load_cluster("p100x2"), runtime=runtime_of(f"replay:host=none{more}"))
        for more in (",graphs=false", "")
    )
    units = graph.num_units
    placement = np.zeros(units, int) if seed is None else np.random.default_rng(seed).integers(0, 2, units)
    device, expected = placement[graph.units], np.zeros(2)
    for user, weight in {(device[op], weight) for op, weight in graph.weight_uses.tolist()}:
        expected[user] += graph.trained_weights[weight]
    for user, tensor in {(device[op], tensor) for op, tensor in graph.held_tensors.uses.tolist()}:
        expected[user] += graph.held_tensors.bytes[tensor]
    data = [(edge, graph.edge_output[at]) for at, edge in enumerate(graph.edges.tolist()) if not graph.control[at]]
    crossing = {(output, device[reader]) for (op, reader), output in data if device[op] != device[reader]}
    assert bool(crossing) is (seed is not None)
    for output, there in crossing:
        expected[there] += graph.occupied_bytes[output]
    peaks = [Simulator(problem).run(placement).peak_bytes for problem in (called, launched)]
    np.testing.assert_allclose(peaks[1] - peaks[0], expected)
