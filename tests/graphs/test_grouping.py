"""Op groups: as many as asked for, nothing lost, and those are tied that exchange most."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphs.files.load import load_graph
from graphs.op_graph import OpGraph
from graphs.op_groups.coarsening import coarsen
from graphs.op_groups.grouping import tie_ops
from tests.oracle.toys import toy_graph

FAMILIES = ("rnnlm:layers=2,steps=4,hidden=8", "inception:blocks=4,width=4,image=32", "transformer:layers=2,width=16")


@pytest.fixture(scope="module", params=FAMILIES)
def step(request: pytest.FixtureRequest) -> OpGraph:
    """A training step of each family."""
    return load_graph(request.param)


@pytest.mark.parametrize("groups", [1, 2, 7, 30, 100000])
def test_a_family_grouped(step: OpGraph, groups: int) -> None:
    tied = tie_ops(step, groups)
    assert tied.num_units == min(groups, step.num_units)
    assert tied.names == step.names
    _, first, unit = np.unique(step.units, return_index=True, return_inverse=True)
    assert (tied.units == tied.units[first[unit]]).all()  # no unit is taken apart


def test_cells_of_a_layer_are_tied_over_the_steps_that_share_their_weights() -> None:
    """Though they form cycles: the first layer's later steps wait for nothing of the second's, but run after it."""
    step = load_graph("rnnlm:layers=4,steps=8,hidden=512,batch=4")
    tied = tie_ops(step, 24)
    layer = np.array([int(found[1]) if (found := re.match(r"layers\.(\d)", name)) else -1 for name in step.names])
    seconds = np.maximum(step.flops / 10e12, step.bytes_accessed / 750e9)
    of_layers = np.zeros((tied.num_units, 4))
    np.add.at(of_layers, (tied.units[layer >= 0], layer[layer >= 0]), seconds[layer >= 0])
    assert of_layers.max(axis=1).sum() > 0.95 * of_layers.sum()


def test_what_a_longer_path_goes_around_ties_less() -> None:
    """Op 0 sends as much to op 3 as to op 1, but a group of 0 and 3 would be left and entered again."""
    graph = toy_graph([1] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)], output_bytes=[9, 8, 9, 1])
    assert tie_ops(graph, 2).units.tolist() == [0, 0, 1, 1]


def test_branches_that_are_alike_are_tied_alike() -> None:
    """Six chains of four ops, whose outputs differ by less than a tenth, between a first and a last op."""
    chains = [[1 + 4 * chain + op for op in range(4)] for chain in range(6)]
    edges = [(a, b) for chain in chains for a, b in zip([0, *chain], [*chain, 25], strict=True)]
    output_bytes = np.array([1.0, *np.random.default_rng(0).uniform(4.6, 5.0, 25)])
    graph = toy_graph([1] * 26, edges, output_bytes=output_bytes.tolist())
    pairs = tie_ops(graph, 14).units[1:25].reshape(6, 4)
    assert (pairs[:, 0] == pairs[:, 1]).all()
    assert (pairs[:, 2] == pairs[:, 3]).all()


def test_groups_follow_what_is_sent() -> None:
    graph = toy_graph([1] * 6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], output_bytes=[9, 9, 1, 9, 9, 1])
    assert tie_ops(graph, 2).units.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("count", [1, 3, 500])
@pytest.mark.parametrize("shape", ["star", "chain", "nothing", "free"])
def test_coarsening_ends_whatever_the_shape(shape: str, count: int) -> None:
    edges = {
        "star": [(0, i) for i in range(1, 400)],
        "chain": [(i, i + 1) for i in range(399)],
        "nothing": [],
        "free": [(i, i + 1) for i in range(399)],
    }[shape]
    size = np.zeros(400) if shape == "free" else np.ones(400)
    links = np.array(edges, np.int64).reshape(-1, 2)
    (label,) = coarsen(links, np.ones(len(edges)), size[:, None], [count])
    assert np.unique(label).tolist() == list(range(min(count, 400)))


def test_a_forward_pass_can_be_grouped() -> None:
    assert tie_ops(load_graph("inception:blocks=4,width=4,image=32", training=False), 3).num_units == 3


def test_tied_ops_can_be_tied_into_fewer_groups(step: OpGraph) -> None:
    assert tie_ops(tie_ops(step, 7), 3).num_units == 3


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("transfer_bytes", np.ones(2)),
        ("edge_bytes", np.ones(1)),
        ("measured_on", {"gpu": np.ones(2)}),
        ("devices", (("gpu",), ())),
    ],
)
def test_what_a_graph_says_in_addition_is_not_lost(key: str, value: Any) -> None:
    graph = replace(toy_graph([1, 1], [(0, 1)]), **{key: value})
    assert len(getattr(tie_ops(graph, 1), key)) == len(value)
