"""Op graphs as PyTorch Geometric's `Data`, both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphs.errors import InputError
from graphs.op_graph import OpGraph

if TYPE_CHECKING:
    from torch_geometric.data import Data

COLUMNS = (
    "flops",
    "bytes_accessed",
    "output_bytes",
    "phase",
    "mirror",
    "group",
    "measured_seconds",
    "control",
    "weights",
)


def to_pyg(graph: OpGraph) -> Data:
    """`edge_index`, (2, edges), `x`, (ops, 3), of FLOP, bytes accessed and output bytes, and every column by its name.

    The members of a grouped graph are left out. Imports torch.
    """
    import torch
    from torch_geometric.data import Data

    columns = {key: torch.from_numpy(np.array(getattr(graph, key))) for key in COLUMNS}
    return Data(
        x=torch.stack([columns["flops"], columns["bytes_accessed"], columns["output_bytes"]], dim=1),
        edge_index=torch.from_numpy(np.array(graph.edges.T, order="C")),
        num_nodes=len(graph),
        name=graph.name,
        names=list(graph.names),
        kinds=list(graph.kinds),
        weight_uses=torch.from_numpy(np.array(graph.weight_uses)),
        **columns,
    )


def from_pyg(data: Data) -> OpGraph:
    """The op graph that `to_pyg` was given. Raises InputError for a `Data` that lacks one of its columns."""
    try:
        columns = {key: data[key].numpy() for key in COLUMNS}
        edges, uses = data["edge_index"].numpy().T, data["weight_uses"].numpy()
        return OpGraph(
            data["name"], tuple(data["names"]), tuple(data["kinds"]), edges=edges, weight_uses=uses, **columns
        )
    except KeyError as error:
        raise InputError(f"this Data was not made by to_pyg: it has no {error}") from error
