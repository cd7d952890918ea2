"""Layers: what a problem is as a chain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.pipelines.layers import Layers
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from tests.envs.expansion.pipelines import Pipeline
from tests.oracle.toys import random_graph, toy_cluster


def test_a_chain_by_hand() -> None:
    pipeline = Pipeline(3, forward=[1, 2, 3], backward=[2, 4, 6], weight_gradient=0.5, activation=10, gradient=7)
    problem = replace(pipeline, weights=5.0, update=0.25).problem(optimizer="adam")
    layers = Layers.of(problem, 10)
    assert layers.forward.tolist() == [1, 2, 3]
    assert layers.backward.tolist() == [2.5, 4.5, 6.5]
    assert layers.update.tolist() == [0.25] * 3
    assert layers.sent.tolist() == [10, 10, 0]
    assert layers.returned.tolist() == [7, 7, 0]
    assert layers.weights.tolist() == [5] * 3
    assert layers.held.tolist() == [20] * 3
    assert layers.kept.tolist() == [10] * 3


@pytest.mark.parametrize(("apart", "right"), [((0, 1), True), ((1,), True), ((0,), False), ((), False)])
def test_weight_gradients_are_apart_where_each_trained_layer_has_ops_for_them(
    apart: tuple[int, ...], right: bool
) -> None:
    """Of two layers. The first reads an input without a gradient: that of its weights is all that is computed of it."""
    ops = [(Phase.FORWARD, 0), (Phase.FORWARD, 1), (Phase.BACKWARD, 1), (Phase.BACKWARD, 0)]
    edges, gradient = [(0, 1), (1, 2), (2, 3)], {1: 2, 0: 3}
    for layer in apart:
        edges.append((gradient[1] if layer == 0 else 1, len(ops)))  # from the gradient of what the layer made
        gradient[layer] = len(ops)
        ops.append((Phase.BACKWARD, layer))
    for layer in (1, 0):
        edges.append((gradient[layer], len(ops)))
        ops.append((Phase.UPDATE, layer))
    graph = OpGraph(
        "two layers", tuple(f"{phase.name.lower()}{op}" for op, (phase, _) in enumerate(ops)), ("toy",) * len(ops),
        np.ones(len(ops)), np.zeros(len(ops)), np.ones(len(ops)), np.array(edges), weights=np.ones(2),
        weight_uses=np.array([(op, layer) for op, (_, layer) in enumerate(ops)]),
        phase=np.array([phase for phase, _ in ops]),
        mirror=np.array([-1 if phase == Phase.FORWARD else layer for phase, layer in ops]),
    )  # fmt: skip
    problem = Problem(graph, toy_cluster(2))
    layers = Layers.of(problem, 2)
    assert len(layers) == 2
    assert layers.weight_gradients_apart(problem) is right


@given(st.integers(1, 25), st.integers(0, 9), st.integers(1, 12))
def test_joined_layers_have_all_of_the_problem_and_no_edge_turns_back(ops: int, seed: int, most: int) -> None:
    problem = Problem(random_graph(ops, seed=seed), toy_cluster(2))
    layers, graph = Layers.of(problem, most), problem.graph
    assert 1 <= len(layers) <= most
    assert np.array_equal(np.unique(layers.of_unit), np.arange(len(layers)))
    assert np.isclose(layers.forward.sum(), Layers.of(problem, 1).forward.sum())
    producer, consumer = layers.of_unit[graph.units[graph.edges]].T
    assert (producer <= consumer)[(graph.phase[graph.edges] == Phase.FORWARD).all(axis=1)].all()
    for cut in range(len(layers) - 1):
        crossing = {
            int(graph.edge_output[edge])
            for edge in np.flatnonzero((producer <= cut) & (consumer > cut) & ~graph.control)
        }
        assert np.isclose(layers.sent[cut], sum(graph.moved_bytes[output] for output in crossing))
