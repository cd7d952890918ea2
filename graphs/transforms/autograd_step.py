"""The step as autograd runs it: by nodes of its own graph, and gradients are summed up where they are made.

A training step as it is captured has one gradient op per op. What it makes is sent to wherever it is read, and the sum
of several is taken there. Autograd has a node for each op, which computes the gradients of what the op reads together
with those of its weights: only then may others have the former, unless the latter wait, in nodes of their own, until a
device has nothing else to do (`envs.placed_models.weight_gradients`). And it has a node for each copy that was made. It
sums up what the ops on that copy's device have computed, and sends that, of the size of what was copied:

    captured                                 as autograd runs it
    a on 0 -> b, c on 1 -> ...               a on 0 -> b, c on 1 -> ...
    b.grad, c.grad -> a.grad: 2 transfers    b.grad + c.grad on 1 -> a.grad: 1 transfer

Of a weight likewise, in place of a chain of partial sums over all its users. Integers have no gradient.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from graphs.algorithms.order import is_acyclic
from graphs.foundation.per_object import once_per_object
from graphs.notation.signatures import Read
from graphs.op_graph import Bools, Floats, Ints, OpGraph, Phase
from graphs.op_graph.kinds import by_kind, ends_with, runs_again

OF_WEIGHTS = ".grad_weight"
DEFERRED = tuple(
    f"aten.{function}{OF_WEIGHTS}" for function in ("addmm", "mm", "convolution", "embedding")
)  # what `weight_gradients.deferred` defers, as it is captured
NO_SUM = -1


@dataclass(frozen=True, eq=False)
class AutogradNodes:
    """What threads of autograd issue together and when, and what they add up before they send it."""

    node: Ints  # (ops,) of each op one that stands for its node, which is on the same device; itself if it is alone
    deferred: Bools  # (ops,) what waits until a device has nothing else to issue
    sums: Ints  # (edges,) those of one number carry messages of one size, which are added up and sent as one from each
    # device to each other; NO_SUM for other edges. Each op that reads a part of one reads all its parts

    def edge_output(self, graph: OpGraph, placement: Ints) -> Ints:
        """(edges,) what each edge carries where ops, (ops,), are on devices: a sum is what its first edge carries."""
        summed = np.flatnonzero(self.sums >= 0)
        source, there = placement[graph.edges[summed]].T
        key = np.column_stack([self.sums[summed], source, there])
        _, first, which = np.unique(key, axis=0, return_index=True, return_inverse=True)
        output = graph.edge_output.copy()
        output[summed] = output[summed[first]][which.ravel()]
        return output

    @classmethod
    def none(cls, graph: OpGraph) -> AutogradNodes:
        """Each op by itself, and no sums."""
        return cls(np.arange(len(graph)), np.zeros(len(graph), np.bool_), np.full(len(graph.edges), NO_SUM))


def autograd_step(graph: OpGraph, deferred: Bools) -> tuple[OpGraph, AutogradNodes]:
    """A training step with the gradients that autograd sends, and its nodes; ops are the same.

    `deferred` says of (ops,) which wait, of those that can. Of a weight that several ops read, the one that updates it
    receives the sum. Other graphs stay as they are.
    """
    sent, sums = _summed(graph)  # the same whether any waits
    return sent, AutogradNodes(_nodes(sent, _is_gradient(graph) & ~deferred), deferred, sums)


def can_wait(graph: OpGraph) -> Bools:
    """(ops,) the gradients of weights that `defer_weight_gradients` of `parallelize` can defer."""
    found: Bools = _is_gradient(graph) & by_kind(graph, lambda kind: kind in DEFERRED)
    return found


def _is_gradient(graph: OpGraph) -> Bools:
    """(ops,) whether each is a gradient of a forward op."""
    found: Bools = (graph.phase == Phase.BACKWARD) & (graph.mirror >= 0) & ~runs_again(graph)
    return found


@once_per_object
def _summed(graph: OpGraph) -> tuple[OpGraph, Ints]:
    """The step with the gradients that autograd sends, and (edges,) the `sums` of its nodes."""
    of_weights = ends_with(graph, OF_WEIGHTS)
    is_gradient = _is_gradient(graph)
    source, reader = graph.edges.T
    tied, number, tied_bytes = _tied(graph, np.flatnonzero(is_gradient & of_weights))
    key = source * len(graph) + reader
    is_tied = np.isin(key, tied[:, 0] * len(graph) + tied[:, 1])
    is_tied |= np.isin(source, tied[:, 0]) & (graph.phase[reader] == Phase.BACKWARD)
    is_tied &= ~graph.control
    passes = is_gradient[source] & is_gradient[reader] & ~graph.control & ~graph.has_message & ~of_weights[source]
    sums = np.where(passes, graph.mirror[reader], NO_SUM)
    lacks = np.zeros(len(sums), np.bool_)
    if graph.signatures is not None:
        known: dict[tuple[int, int], bool] = {}
        reads_others = np.array([not all(map(_is_real, each.reads)) for each in graph.signatures.distinct] + [False])
        for edge in np.flatnonzero(passes)[reads_others[graph.signatures.of[sums[passes]]]].tolist():
            pair = int(sums[edge]), int(graph.mirror[source[edge]])
            if pair not in known:
                known[pair] = _has_gradient(graph, *pair)
            lacks[edge] = not known[pair]
    kept = ~is_tied & ~lacks
    edges = np.concatenate([graph.edges[kept], tied])
    own = graph.edge_bytes[kept] if len(graph.edge_bytes) else np.full(int(kept.sum()), np.nan)
    own = np.where(sums[kept] >= 0, graph.sent_bytes[sums[kept]], own)
    sums, edge_bytes = np.concatenate([sums[kept], len(graph) + number]), np.concatenate([own, tied_bytes])
    control = np.concatenate([graph.control[kept], np.zeros(len(tied), np.bool_)])
    order = np.lexsort((edges[:, 1], sums, edges[:, 0]))
    return replace(graph, edges=edges[order], control=control[order], edge_bytes=edge_bytes[order]), sums[order]


def _nodes(graph: OpGraph, is_gradient: Bools) -> Ints:
    """(ops,) the first of the gradients of the same forward op."""
    alone = np.arange(len(graph))
    node = alone.copy()
    gradients = np.flatnonzero(is_gradient)
    _, first, which = np.unique(graph.mirror[gradients], return_index=True, return_inverse=True)
    node[gradients] = gradients[first][which]
    between = node[graph.edges]
    between = between[between[:, 0] != between[:, 1]]
    return node if is_acyclic(between, len(node)) else alone


def _tied(graph: OpGraph, gradients: Ints) -> tuple[Ints, Ints, Floats]:
    """Gradients of weights that several ops read, and the updates of these: (pairs, 2) ops.

    Also (pairs,) a number of the weights that are meant, and their bytes.
    """
    of_op = {int(graph.mirror[op]): int(op) for op in gradients}
    update = {int(graph.mirror[op]): int(op) for op in np.flatnonzero(graph.phase == Phase.UPDATE)}
    users: dict[int, list[int]] = defaultdict(list)
    for op, weight in sorted(graph.weight_uses.tolist()):
        users[weight].append(op)
    pairs: dict[tuple[int, int], tuple[int, ...]] = defaultdict(tuple)
    for weight, ops in users.items():
        owner = next((op for op in ops if op in update), None)
        if owner is not None and len(ops) > 1:
            for op in dict.fromkeys(ops):
                if op in of_op:
                    pairs[of_op[op], update[owner]] += (weight,)
    number = {weights: index for index, weights in enumerate(dict.fromkeys(pairs.values()))}
    sizes = [float(graph.weights[list(weights)].sum()) for weights in pairs.values()]
    numbers = [number[weights] for weights in pairs.values()]
    return np.array([*pairs], np.int64).reshape(-1, 2), np.array(numbers, np.int64), np.array(sizes)


def _has_gradient(graph: OpGraph, producer: int, consumer: int) -> bool:
    """Whether an op reads another as something that can have a gradient; so it is if that is not known."""
    signatures = graph.signatures
    signature = None if signatures is None else signatures.signature(consumer)
    if signatures is None or signature is None:
        return True
    reads = [
        read for read, source in zip(signature.reads, signatures.numbers(consumer), strict=True) if source == producer
    ]
    return not reads or any(map(_is_real, reads))


def _is_real(read: Read) -> bool:
    """Whether what is read can have a gradient."""
    return "float" in read.dtype or "complex" in read.dtype
