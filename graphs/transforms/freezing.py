"""Freezing: training steps whose first layers are no longer trained.

Frozen layers run forward only, as in PipeTransformer (He et al. 2021, section 3.1): the backward pass ends above them,
and their weights have neither gradients nor optimizer state.

    all are trained         f0 and f1 are frozen

    f0 -> f1 -> f2 -> loss  f0 -> f1 -> f2 -> loss
    b0 <- b1 <- b2 <----'               b2 <----'
    u0    u1    u2                      u2
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats, Ints, OpGraph, Phase
from graphs.op_graph.batch_law import COSTS, BatchLaw
from graphs.op_graph.subgraph import subgraph
from graphs.op_graph.weight_memory import weight_gradients
from graphs.op_groups.layer_names import named_layers


def freeze_layers(graph: OpGraph, layers: int) -> OpGraph:
    """The training step with its first layers frozen, by `first_layers`; none leaves it as it is.

    Raises InputError as `first_layers` and `freeze` do.
    """
    if layers == 0:
        return graph
    return replace(freeze(graph, first_layers(graph, layers)), name=f"{graph.name}, {layers} layers frozen")


def first_layers(graph: OpGraph, layers: int) -> Bools:
    """(ops,) the forward ops of the first `layers` layers, as names show them, and all that these depend on.

    So embeddings are with the first layer, and what follows the last one, such as the output layer, is not with it.
    Raises InputError for names that do not show layers, and for less than none or more layers than there are.
    """
    layer = np.where(graph.phase == Phase.FORWARD, named_layers(graph), -1)
    count = int(layer.max()) + 1
    if count == 0:
        raise InputError(f"the names of {graph.name!r} show no layers, such as layers.0 and layers.1; freeze its ops")
    if not 0 <= layers <= count:
        raise InputError(f"{layers} layers of {graph.name!r} cannot be frozen; it has {count}")
    return _with_producers(graph, (layer >= 0) & (layer < layers))


def freeze(graph: OpGraph, ops: Bools) -> OpGraph:
    """The training step without what trains the given forward ops, (ops,), which depend on no others.

    A weight that one of them reads is frozen, wherever else it is used: an output layer that shares the embedding's
    is not trained any more. Of a gradient for several weights, and of their update, the part of those that are trained
    is left, in proportion to their bytes. Raises InputError for a graph that is no training step, for ops that depend
    on others or are no forward ops, if it is not known which backward ops are theirs, and if nothing is left to train.
    """
    _check(graph, ops)
    frozen = np.zeros(len(graph.weights), np.bool_)
    frozen[graph.weight_uses[ops[graph.weight_uses[:, 0]], 1]] = True
    if len(graph.frozen):
        frozen |= graph.frozen
    trained = _trained_share(graph, frozen)
    forward = np.where(graph.mirror >= 0, graph.mirror, np.arange(len(graph)))
    is_later = graph.phase != Phase.FORWARD
    of_weights = weight_gradients(graph) | (graph.phase >= Phase.UPDATE)
    gone = is_later & (ops[forward] | (of_weights & (trained[forward] == 0)))
    kept = ~_with_useless(graph, gone)
    partly = np.flatnonzero(of_weights & kept & (trained[forward] < 1))
    changed = replace(_with_shares(graph, partly, trained[forward[partly]], frozen), frozen=frozen)
    if not (kept & (graph.phase == Phase.UPDATE)).any():
        raise InputError(f"no weight of {graph.name!r} would be trained any more; freeze fewer layers")
    return subgraph(changed, kept)


def _check(graph: OpGraph, ops: Bools) -> None:
    if not graph.is_training:
        raise InputError(f"graph {graph.name!r} is no training step, so nothing of it can be frozen; capture one")
    later = np.flatnonzero(graph.phase != Phase.FORWARD)
    if ops[later].any():
        raise InputError(f"op {graph.names[later[ops[later]][0]]!r} is no forward op; freeze forward ops")
    if len(alone := later[graph.mirror[later] < 0]):
        raise InputError(
            f"graph {graph.name!r} does not say which forward op {graph.names[alone[0]]!r} belongs to (`mirror`), so "
            "its layers cannot be frozen"
        )
    outside = graph.edges[ops[graph.edges[:, 1]] & ~ops[graph.edges[:, 0]]]
    if len(outside):
        producer, consumer = (graph.names[op] for op in outside[0])
        raise InputError(f"op {consumer!r} depends on {producer!r}; freeze that, too")


def _with_producers(graph: OpGraph, ops: Bools) -> Bools:
    """(ops,) these forward ops and all that they depend on."""
    found, (producer, consumer) = ops.copy(), graph.edges.T
    while len(more := producer[found[consumer] & ~found[producer]]):
        found[more] = True
    return found


def _trained_share(graph: OpGraph, frozen: Bools) -> Floats:
    """(ops,) the part of the weights that each op reads, by bytes, that is trained; 1 for one without weights."""
    total, trained = np.zeros((2, len(graph)))
    op, weight = graph.weight_uses.T
    np.add.at(total, op, graph.weights[weight])
    np.add.at(trained, op, np.where(frozen, 0.0, graph.weights)[weight])
    return np.divide(trained, total, out=np.ones(len(graph)), where=total > 0)


def _with_useless(graph: OpGraph, gone: Bools) -> Bools:
    """(ops,) those that are gone, and those whose outputs nobody needs without them, or that waited for nothing else.

    Gradients that only frozen layers read are such, and what made them; and updates without a gradient.
    """
    found = gone.copy()
    producer, consumer = graph.edges[~graph.control].T
    readers = np.bincount(producer, minlength=len(graph))
    awaited = np.bincount(consumer, minlength=len(graph))
    is_backward, is_after = graph.phase == Phase.BACKWARD, graph.phase >= Phase.UPDATE
    while True:
        left = np.bincount(producer, ~found[consumer], len(graph))
        waits = np.bincount(consumer, ~found[producer], len(graph))
        more = ~found & ((is_backward & (readers > 0) & (left == 0)) | (is_after & (awaited > 0) & (waits == 0)))
        if not more.any():
            return found
        found |= more


def _with_shares(graph: OpGraph, ops: Ints, share: Floats, frozen: Bools) -> OpGraph:
    """The graph with gradients of weights and updates, `ops`, for the share of their weights that is trained.

    A gradient is computed from as much as before, but for the frozen weights.
    """
    is_update = graph.phase[ops] >= Phase.UPDATE
    forward = np.where(graph.mirror[ops] >= 0, graph.mirror[ops], ops)
    op, weight = graph.weight_uses.T
    unread = np.bincount(op, np.where(frozen, graph.weights, 0.0)[weight], len(graph))[forward]

    def part(amounts: Mapping[str, Floats]) -> dict[str, Floats]:
        found = {key: values.copy() for key, values in amounts.items()}
        for key in ("flops", "output_bytes"):
            found[key][ops] *= share
        accessed = amounts["bytes_accessed"][ops]
        found["bytes_accessed"][ops] = np.where(is_update, accessed * share, np.maximum(accessed - unread, 0.0))
        return found

    law = graph.batch_law
    if law is not None and law.knows_ops:
        law = BatchLaw(law.samples, **part({key: getattr(law, key) for key in COSTS}))
    costs = part({key: getattr(graph, key) for key in COSTS})
    return replace(
        graph,
        flops=costs["flops"],
        bytes_accessed=costs["bytes_accessed"],
        output_bytes=costs["output_bytes"],
        batch_law=law,
    )
