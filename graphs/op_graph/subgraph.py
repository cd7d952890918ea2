"""Subgraph: some ops of a graph, and all between them."""

from dataclasses import replace

import numpy as np

from graphs.notation.described import Described
from graphs.op_graph import RESIDENT, Bools, OpGraph
from graphs.op_graph.batch_law import COSTS, BatchLaw

_PER_OP = (*COSTS, "phase", "group", "measured_seconds")


def subgraph(graph: OpGraph, kept: Bools) -> OpGraph:
    """The ops that are kept, (ops,), in their order, and the edges between them. Raises InputError if there are none.

    An op is no longer tied to the device of one that is not kept.
    """
    ops = np.flatnonzero(kept)
    position = np.full(len(graph), -1)
    position[ops] = np.arange(len(ops))
    inside = (position[graph.edges] >= 0).all(axis=1)
    uses = graph.weight_uses[position[graph.weight_uses[:, 0]] >= 0]
    mirror, law = graph.mirror[ops], graph.batch_law
    if law is not None and law.knows_ops:
        law = BatchLaw(law.samples, **{key: getattr(law, key)[ops] for key in COSTS})
    return replace(
        graph,
        names=tuple(graph.names[op] for op in ops),
        kinds=tuple(graph.kinds[op] for op in ops),
        **{key: getattr(graph, key)[ops] for key in _PER_OP},
        measured_on={device: seconds[ops] for device, seconds in graph.measured_on.items()},
        devices=tuple(graph.devices[op] for op in ops) if graph.devices else (),
        calls=tuple(graph.calls[op] for op in ops) if graph.calls else (),
        described=_described(graph, ops.tolist()),
        precisions=tuple(graph.precisions[op] for op in ops) if graph.precisions else (),
        transfer_bytes=graph.transfer_bytes[ops] if len(graph.transfer_bytes) else graph.transfer_bytes,
        **{key: getattr(graph, key)[ops] for key in RESIDENT if len(getattr(graph, key))},
        edge_bytes=graph.edge_bytes[inside] if len(graph.edge_bytes) else graph.edge_bytes,
        edges=position[graph.edges[inside]],
        control=graph.control[inside],
        weight_uses=np.stack([position[uses[:, 0]], uses[:, 1]], axis=1),
        mirror=np.where(mirror >= 0, position[mirror], -1),
        batch_law=law,
        held=None if graph.held is None else graph.held.of_ops(position),
        signatures=graph.signatures.kept(ops, len(graph.weights)) if graph.signatures else None,
        autograd=graph.autograd.kept({op: number for number, op in enumerate(ops.tolist())})
        if graph.autograd
        else None,
    )


def _described(graph: OpGraph, ops: list[int]) -> tuple[Described | None, ...]:
    """What is known of the ops that are kept."""
    if not graph.described:
        return ()
    position = {op: number for number, op in enumerate(ops)}
    return tuple(None if (each := graph.described[op]) is None else each.moved(position) for op in ops)
