"""Op graphs as networkx graphs, both ways: every column of an `OpGraph` becomes an attribute."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np

from graphs.errors import InputError
from graphs.op_graph import OpGraph

COLUMNS = ("flops", "bytes_accessed", "output_bytes", "phase", "mirror", "group", "measured_seconds")


def to_networkx(graph: OpGraph) -> nx.DiGraph[int]:
    """Nodes 0, 1, ... with a name, a kind and the columns; edges with `control`; weights as graph attributes.

    The members of a grouped graph are left out.
    """
    made: nx.DiGraph[int] = nx.DiGraph(
        name=graph.name, weights=graph.weights.tolist(), weight_uses=[tuple(use) for use in graph.weight_uses.tolist()]
    )
    columns = {key: getattr(graph, key).tolist() for key in COLUMNS}
    for op, (name, kind) in enumerate(zip(graph.names, graph.kinds, strict=True)):
        made.add_node(op, name=name, kind=kind, **{key: values[op] for key, values in columns.items()})
    for (producer, consumer), control in zip(graph.edges.tolist(), graph.control.tolist(), strict=True):
        made.add_edge(producer, consumer, control=control)
    return made


def from_networkx(made: nx.DiGraph[Any], *, name: str = "") -> OpGraph:
    """An op graph from any directed graph; what its nodes do not say is zero, or nothing.

    Nodes may be anything; those without a `name` are called by their text. Raises InputError for an undirected graph, a
    cycle, or an attribute that makes no sense.
    """
    if not made.is_directed() or made.is_multigraph():
        raise InputError("expected a directed networkx graph without parallel edges (DiGraph)")
    nodes = list(made.nodes)
    index = {node: position for position, node in enumerate(nodes)}
    edges = [(index[u], index[v]) for u, v in made.edges]
    missing = {"phase": 0, "mirror": -1, "group": -1, "measured_seconds": np.nan}
    try:
        columns: dict[str, Any] = {
            key: np.array([made.nodes[node].get(key, missing.get(key, 0.0)) for node in nodes]) for key in COLUMNS
        }
        return OpGraph(
            name or str(made.graph.get("name", "graph")),
            tuple(str(made.nodes[node].get("name", node)) for node in nodes),
            tuple(str(made.nodes[node].get("kind", "op")) for node in nodes),
            edges=np.array(edges, np.int64).reshape(-1, 2),
            control=np.array([bool(made.edges[edge].get("control", False)) for edge in made.edges], np.bool_),
            weights=np.array(made.graph.get("weights", []), np.float64),
            weight_uses=np.array(made.graph.get("weight_uses", []), np.int64).reshape(-1, 2),
            **columns,
        )
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"a networkx graph with attributes that make no sense: {error}") from error
