"""Op graphs in networkx and PyTorch Geometric, and back."""

import contextlib
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch
from torch_geometric.nn import SAGEConv

from graphs.formats.networkx import from_networkx, to_networkx
from graphs.formats.pyg import from_pyg, to_pyg
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from tests.drawn import examples
from tests.oracle.strategies import full_graphs
from tests.oracle.toys import toy_graph

several = settings(max_examples=examples(50, 9), deadline=None, suppress_health_check=list(HealthCheck))
any_graph = st.integers(1, 8).flatmap(full_graphs)


@several
@given(any_graph)
def test_a_graph_comes_back_from_networkx(graph: OpGraph) -> None:
    made = to_networkx(graph)
    assert nx.is_directed_acyclic_graph(made)
    assert sorted(edge[:2] for edge in made.edges(data=True)) == sorted(tuple(edge) for edge in graph.edges.tolist())
    again = from_networkx(made)
    assert again.fingerprint == graph.fingerprint
    assert again.names == graph.names


@several
@given(any_graph)
def test_a_graph_comes_back_from_pyg(graph: OpGraph) -> None:
    again = from_pyg(to_pyg(graph))
    assert again.fingerprint == graph.fingerprint
    assert again.names == graph.names


@settings(max_examples=examples(25, 10), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(any_graph, min_size=2, max_size=3))
def test_indices_of_a_batch_are_those_of_the_batch_and_graphs_come_back(graphs: list[OpGraph]) -> None:
    batch = Batch.from_data_list([to_pyg(graph) for graph in graphs])
    ops = weights = groups = at = uses = 0
    for graph in graphs:
        found = batch.mirror[at : at + len(graph)].numpy()
        assert np.array_equal(found, np.where(graph.mirror < 0, -1, graph.mirror + ops))
        found = batch.group[at : at + len(graph)].numpy()
        assert np.array_equal(found, np.where(graph.group < 0, -1, graph.group + groups))
        found = batch.weight_uses[uses : uses + len(graph.weight_uses)].numpy()
        assert np.array_equal(found, graph.weight_uses + np.array([ops, weights]))
        at, uses = at + len(graph), uses + len(graph.weight_uses)
        ops, weights, groups = ops + len(graph), weights + len(graph.weights), groups + graph.group.max() + 1
    for again, graph in zip(batch.to_data_list(), graphs, strict=True):
        assert from_pyg(again).fingerprint == graph.fingerprint


def test_layers_of_pyg_read_the_features_as_they_are() -> None:
    data = to_pyg(replace(toy_graph([1, 1], [(0, 1)]), flops=np.array([0.0, 1e15])))
    assert data.x.dtype == torch.float32
    assert data.x[:, 0].tolist() == pytest.approx([0, np.log(1e15)])
    assert SAGEConv(3, 4)(data.x, data.edge_index).isfinite().all()


def test_edges_keep_their_order_in_networkx_whatever_it_does_with_them() -> None:
    graph = toy_graph([1, 1, 1], [(1, 2), (0, 2), (0, 1)])
    made = to_networkx(graph)
    assert from_networkx(made).edges.tolist() == graph.edges.tolist()
    made.add_node(3)
    made.add_edge(0, 3)  # comes last
    assert from_networkx(made).edges.tolist() == [*graph.edges.tolist(), [0, 3]]


def test_several_edges_between_two_ops_are_all_kept_in_networkx() -> None:
    graph = replace(toy_graph([1, 1], [(0, 1), (0, 1)]), edge_bytes=np.array([3.0, 4.0]))
    made = to_networkx(graph)
    assert isinstance(made, nx.MultiDiGraph)
    assert from_networkx(made).edge_bytes.tolist() == [3, 4]
    assert not to_networkx(toy_graph([1, 1], [(0, 1)])).is_multigraph()


def test_attributes_that_few_nodes_and_edges_have_are_read() -> None:
    made = nx.DiGraph([("x", "y"), ("y", "z")])
    made.nodes["x"].update(output_bytes=5.0)
    made.nodes["y"].update(output_bytes=8.0, transfer_bytes=2.0, devices=("gpu:1",))
    made.edges["y", "z"]["edge_bytes"] = 1.0
    graph = from_networkx(made)
    assert graph.transfer_bytes.tolist() == [5, 2, 0], "what is sent is the output, unless it is said"
    assert graph.devices == ((), ("gpu:1",), ())
    np.testing.assert_array_equal(graph.edge_bytes, [np.nan, 1])


def test_any_directed_graph_is_taken_and_other_ones_are_refused() -> None:
    graph = from_networkx(nx.DiGraph([("x", "y"), ("x", "z")]), name="three")
    assert graph.names == ("x", "y", "z")
    assert graph.edges.tolist() == [[0, 1], [0, 2]]
    for nothing in (graph.flops, graph.bytes_accessed, graph.output_bytes):
        assert nothing.tolist() == [0, 0, 0]
    with pytest.raises(InputError, match="expected a directed networkx graph"):
        from_networkx(nx.Graph([("x", "y")]))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="cyclic"):
        from_networkx(nx.DiGraph([("x", "y"), ("y", "x")]))
    wrong = nx.DiGraph([("x", "y")])
    wrong.nodes["x"]["flops"] = "many"
    with pytest.raises(InputError, match="attributes that make no sense"):
        from_networkx(wrong)


def test_data_of_other_origin_is_refused() -> None:
    data = to_pyg(toy_graph([1, 1], [(0, 1)]))
    del data["flops"]
    with pytest.raises(InputError, match="it has no 'flops'"):
        from_pyg(data)


@pytest.mark.parametrize(
    "column", ["flops", "mirror", "names", "edge_index", "weight_uses", "measured_on", "devices", "control"]
)
def test_data_with_a_column_that_makes_no_sense_gets_one_sentence(column: str) -> None:
    wrong = [3, True, [3], [["a"]], "x", torch.zeros(3), torch.full((7,), -5), torch.zeros(7, 2), [("gpu", 3)]]
    for value in wrong:
        data = to_pyg(toy_graph([1, 1], [(0, 1)], weights=[4], weight_uses=[(0, 0)]))
        data[column] = value
        with contextlib.suppress(InputError):
            from_pyg(data)
