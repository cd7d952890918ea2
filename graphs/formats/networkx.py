"""Op graphs as networkx graphs, both ways: every column of an `OpGraph` becomes an attribute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np

from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph

COLUMNS = ("flops", "bytes_accessed", "output_bytes", "phase", "mirror", "group", "measured_seconds")
_MISSING = {"phase": 0, "mirror": -1, "group": -1, "measured_seconds": np.nan}  # of the others, 0
_PRECISIONS = ("weight_precisions", "gradient_precision", "master_weights")  # of the graph


def to_networkx(graph: OpGraph) -> nx.DiGraph[int]:
    """Nodes 0, 1, ... with a name, a kind and the columns; edges with `control` and their `position` in the graph.

    Weights, which of them are frozen, and their precisions are attributes of the graph. Optional columns are there if
    the graph has them: of nodes `transfer_bytes`, `measured_on`, `devices` and `precision`, of edges `edge_bytes`. With
    several edges between two ops, it is a `MultiDiGraph`.
    """
    is_multi = len(np.unique(graph.edges, axis=0)) < len(graph.edges)
    made: nx.DiGraph[int] = (nx.MultiDiGraph if is_multi else nx.DiGraph)(
        name=graph.name, weights=graph.weights.tolist(), weight_uses=[tuple(use) for use in graph.weight_uses.tolist()]
    )
    columns = {key: getattr(graph, key).tolist() for key in COLUMNS}
    if len(graph.transfer_bytes):
        columns["transfer_bytes"] = graph.transfer_bytes.tolist()
    if len(graph.frozen):
        made.graph["frozen"] = graph.frozen.tolist()
    for key in _PRECISIONS:
        if getattr(graph, key):
            made.graph[key] = getattr(graph, key)
    if graph.precisions:
        columns["precision"] = list(graph.precisions)
    if graph.devices:
        columns["devices"] = [list(names) for names in graph.devices]
    if graph.measured_on:
        on = {device: seconds.tolist() for device, seconds in graph.measured_on.items()}
        columns["measured_on"] = [{device: on[device][op] for device in on} for op in range(len(graph))]
    for op, (name, kind) in enumerate(zip(graph.names, graph.kinds, strict=True)):
        made.add_node(op, name=name, kind=kind, **{key: values[op] for key, values in columns.items()})
    own = graph.edge_bytes.tolist() if len(graph.edge_bytes) else [None] * len(graph.edges)
    for position, (ends, control, size) in enumerate(
        zip(graph.edges.tolist(), graph.control.tolist(), own, strict=True)
    ):
        made.add_edge(*ends, control=control, position=position, **({} if size is None else {"edge_bytes": size}))
    return made


def from_networkx(made: nx.DiGraph[Any], *, name: str = "") -> OpGraph:
    """An op graph from any directed graph; what its nodes leave out is zero or empty.

    Nodes may be of any type; the name of one without a `name` is its text. Edges come by `position`, and those without
    one after them. Raises InputError for an undirected graph, a cycle, or an attribute that makes no sense.
    """
    if not made.is_directed():
        raise InputError("expected a directed networkx graph (DiGraph or MultiDiGraph)")
    nodes = [made.nodes[node] for node in made.nodes]
    index = {node: position for position, node in enumerate(made.nodes)}
    try:
        edges = sorted(made.edges(data=True), key=lambda edge: float(edge[2].get("position", np.inf)))
        columns: dict[str, Any] = {
            key: np.array([node.get(key, _MISSING.get(key, 0.0)) for node in nodes]) for key in COLUMNS
        }
        return OpGraph(
            name or str(made.graph.get("name", "graph")),
            tuple(str(attributes.get("name", node)) for node, attributes in zip(made.nodes, nodes, strict=True)),
            tuple(str(node.get("kind", "op")) for node in nodes),
            edges=np.array([(index[u], index[v]) for u, v, _ in edges], np.int64).reshape(-1, 2),
            control=np.array([bool(edge.get("control", False)) for _, _, edge in edges], np.bool_),
            weights=np.array(made.graph.get("weights", []), np.float64),
            weight_uses=np.array(made.graph.get("weight_uses", []), np.int64).reshape(-1, 2),
            frozen=np.array(made.graph.get("frozen", []), np.bool_),
            precisions=tuple(str(node.get("precision", "")) for node in nodes),
            **{key: made.graph[key] for key in _PRECISIONS if key in made.graph},
            **columns,
            **_optional_columns(nodes, [edge for _, _, edge in edges]),
        )
    except InputError:
        raise
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"a networkx graph with attributes that make no sense: {error}") from error


def _optional_columns(nodes: Sequence[dict[str, Any]], edges: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Columns of an `OpGraph` that few graphs have."""
    columns: dict[str, Any] = {}
    if any("transfer_bytes" in node for node in nodes):
        sent = [node.get("transfer_bytes", node.get("output_bytes", 0.0)) for node in nodes]
        columns["transfer_bytes"] = np.array(sent, np.float64)
    if any("devices" in node for node in nodes):
        columns["devices"] = tuple(tuple(map(str, node.get("devices", ()))) for node in nodes)
    if any("edge_bytes" in edge for edge in edges):
        columns["edge_bytes"] = np.array([edge.get("edge_bytes", np.nan) for edge in edges], np.float64)
    measured = [node.get("measured_on", {}) for node in nodes]
    columns["measured_on"] = {
        device: np.array([each.get(device, np.nan) for each in measured], np.float64)
        for device in sorted({str(device) for each in measured for device in each})
    }
    return columns
