"""Op graphs as PyTorch Geometric's `Data`, both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphs.foundation.errors import InputError
from graphs.foundation.extras import check_installed
from graphs.op_graph import OpGraph

if TYPE_CHECKING:
    from torch_geometric.data import Data

COLUMNS = (
    "flops", "bytes_accessed", "output_bytes", "phase", "mirror", "group", "measured_seconds", "control", "weights",
    "transfer_bytes", "edge_bytes", "frozen",
)  # fmt: skip
OPTIONAL = ("mirror", "group")  # indices, or -1
PRECISIONS = ("precisions", "weight_precisions")  # texts, which 0.2.0 did not write, and neither the two below


def to_pyg(graph: OpGraph) -> Data:
    """`edge_index`, (2, edges), `x`, (ops, 3), and every column by its name.

    `x` is what layers read, in single precision: log(1 + FLOP), log(1 + bytes accessed) and log(1 + output bytes). In a
    `Batch` all indices are those of the batch: `mirror`, `group` and `weight_uses` as `edge_index`. `measured_on` is a
    list of devices and columns, and `devices` one of lists. Imports torch.
    """
    import torch  # seconds to import, as the next

    check_installed("torch_geometric", "`to_pyg`")
    from graphs.formats.pyg_data import OpGraphData, OptionalIndex

    columns = {key: torch.from_numpy(np.array(getattr(graph, key))) for key in COLUMNS}
    columns |= {key: columns[key].as_subclass(OptionalIndex) for key in OPTIONAL}
    costs = torch.stack([columns["flops"], columns["bytes_accessed"], columns["output_bytes"]], dim=1)
    return OpGraphData(
        x=costs.log1p().float(),
        edge_index=torch.from_numpy(np.array(graph.edges.T, order="C")),
        num_nodes=len(graph),
        name=graph.name,
        names=list(graph.names),
        kinds=list(graph.kinds),
        weight_uses=torch.from_numpy(np.array(graph.weight_uses)),
        measured_on=[(device, torch.from_numpy(np.array(seconds))) for device, seconds in graph.measured_on.items()],
        devices=[list(names) for names in graph.devices],
        **{key: list(getattr(graph, key)) for key in PRECISIONS},
        gradient_precision=graph.gradient_precision,
        master_weights=graph.master_weights,
        **columns,
    )


def from_pyg(data: Data) -> OpGraph:
    """The op graph that `to_pyg` was given.

    Raises InputError for a `Data` that lacks one of its columns, or has one that makes no sense.
    """
    try:
        columns = {key: data[key].numpy() for key in COLUMNS}
        names, kinds = (tuple(map(str, data[key])) for key in ("names", "kinds"))
        precisions, of_weights = (tuple(map(str, data[key])) if key in data else () for key in PRECISIONS)
        return OpGraph(
            *(str(data["name"]), names, kinds),
            edges=data["edge_index"].numpy().T,
            weight_uses=data["weight_uses"].numpy(),
            measured_on={str(device): seconds.numpy() for device, seconds in data["measured_on"]},
            devices=tuple(tuple(map(str, names)) for names in data["devices"]),
            precisions=precisions,
            weight_precisions=of_weights,
            gradient_precision=str(data["gradient_precision"]) if "gradient_precision" in data else "",
            master_weights=bool(data["master_weights"]) if "master_weights" in data else False,
            **columns,
        )
    except InputError:
        raise
    except KeyError as error:
        raise InputError(f"this Data was not made by to_pyg: it has no {error}") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"a Data of PyTorch Geometric with columns that make no sense: {error}") from error
