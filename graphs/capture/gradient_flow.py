"""Gradient flow: which ops of a forward graph send a gradient to which of their operands.

By rule, an op needs a gradient if it reads a trained weight or an op that needs one, unless what it makes has none (as
a comparison), and sends one to all of these; the loss is the sum of the outputs that no op reads. `OpGraph.autograd`
says where a model's own code has it otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from graphs.op_graph import SPARSE, OpGraph
from graphs.op_graph.autograd import Autograd, Pair

# What is flat between its steps (floor, sign) is not here: autograd sends zeros back through it.
HAS_NO_GRADIENT = {
    "_local_scalar_dense", "all", "any", "argmax", "argmin", "bernoulli", "bitwise_and", "bitwise_not", "bitwise_or",
    "count_nonzero",
    "empty_like", "eq", "full_like", "ge", "gt", "heaviside", "isin", "isinf", "isnan", "isneginf", "isposinf", "le",
    "logical_and", "logical_not", "logical_or", "lt", "ne", "ones_like", "rand_like", "randn_like", "zeros_like",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class GradientFlow:
    """Where gradients flow in the backward pass of a forward graph."""

    graph: OpGraph
    can: list[bool]  # (ops,) whether each output can have a gradient
    needs_grad: list[bool]  # (ops,) whether the gradient of a weight or held tensor depends on that of each output
    towards: list[list[int]]  # (ops,) the producers that each op sends a gradient to
    weights: list[list[int]]  # (ops,) the weights that each op gives a gradient
    inputs: list[list[int]]  # (ops,) the held tensors that each op gives one

    @classmethod
    def of(cls, graph: OpGraph) -> GradientFlow:
        """By the rule, and by what the graph says of its model."""
        own = graph.autograd or Autograd()
        stops, constant = set(own.stops), set(own.constant_uses)
        frozen = set(np.flatnonzero(graph.frozen).tolist())
        constant |= {(op, weight) for op, weight in graph.weight_uses.tolist() if weight in frozen}
        return _flow(graph, lambda edge: edge not in stops, lambda use: use not in constant, own)

    @property
    def loss_reads(self) -> list[int]:
        """The ops whose outputs are summed up to the loss."""
        own = self.graph.autograd
        return self._unread if own is None or own.outputs is None else list(own.outputs)

    @property
    def _unread(self) -> list[int]:
        is_read = np.zeros(len(self.graph), np.bool_)
        is_read[self.graph.edges[~self.graph.control, 0]] = True
        return [op for op in np.flatnonzero(~is_read).tolist() if self.needs_grad[op]]

    def last(self, ops: Iterable[int]) -> list[int]:
        """Those of some ops that none of the others is computed from, in their order in the graph."""
        chosen, leads = set(ops), [False] * len(self.graph)  # whether another one of them is computed from each op
        for op in self.graph.topological_order[::-1].tolist():
            if leads[op] or op in chosen:
                for producer in self.towards[op]:
                    leads[producer] = True
        return [op for op in sorted(chosen) if self.needs_grad[op] and not leads[op]]


def autograd_of(
    graph: OpGraph,
    sends: set[Pair],
    trains: set[Pair],
    trained: Iterable[int],
    *,
    inputs: Iterable[Pair] = (),
    leaves: Iterable[int] = (),
    own: Iterable[int] = (),
) -> Autograd | None:
    """What is to be said of a graph of which it is known where gradients flow; None if the rule says the same.

    `sends` are the edges, as producer and consumer, that carry gradients; `trains` the uses, as op and weight, that
    give the weight one, `inputs` those, as op and held tensor, that give such a tensor one; `leaves` are ops whose
    outputs are given a gradient by themselves, `trained` those whose outputs are summed up to the loss.
    """
    found = Autograd(
        own=tuple(op for op in sorted(own) if not has_gradient(graph, op)),
        inputs=tuple(sorted(inputs)),
        leaves=tuple(sorted(leaves)),
    )
    flow = _flow(graph, sends.__contains__, trains.__contains__, found)
    can = flow.can
    frozen = set(np.flatnonzero(graph.frozen).tolist())
    stops = [(u, v) for u, v in _edges(graph) if flow.needs_grad[u] and can[v] and (u, v) not in sends]
    constant = [
        (op, weight)
        for op, weight in graph.weight_uses.tolist()
        if weight not in frozen and can[op] and (op, weight) not in trains
    ]
    outputs = flow.last(trained)
    found = structs.replace(
        found,
        stops=tuple(stops),
        constant_uses=tuple(constant),
        outputs=None if outputs == flow._unread else tuple(outputs),
    )
    return None if found == Autograd() else found


def detaches(operation: object) -> bool:
    """Whether an operation, or its name ("aten.detach"), makes a view that sends no gradient back."""
    return str(operation).partition(".")[2].partition(".")[0] in ("detach", "detach_")


def has_gradient(graph: OpGraph, op: int) -> bool:
    """Whether what an op makes can have a gradient, by its kind."""
    return aten_name(graph.kinds[op]) not in HAS_NO_GRADIENT


def aten_name(kind: str) -> str:
    """The name of an ATen operation, "mm" for "aten.mm"; "" for other kinds, whose gradients are not known."""
    library, _, name = kind.removesuffix(SPARSE).partition(".")
    return name if library == "aten" else ""


def _edges(graph: OpGraph) -> list[Pair]:
    """The edges that carry something, as producer and consumer."""
    return [(producer, consumer) for producer, consumer in graph.edges[~graph.control].tolist()]


def _flow(graph: OpGraph, sends: Callable[[Pair], bool], trains: Callable[[Pair], bool], own: Autograd) -> GradientFlow:
    ops = len(graph)
    needs, can = [False] * ops, [has_gradient(graph, op) for op in range(ops)]
    for op in own.own:
        can[op] = True
    weights: list[list[int]] = [[] for _ in range(ops)]
    inputs: list[list[int]] = [[] for _ in range(ops)]
    for op in own.leaves:
        needs[op] = True
    for op, tensor in own.inputs:
        if can[op]:
            inputs[op].append(tensor)
            needs[op] = True
    for op, weight in graph.weight_uses.tolist():
        if can[op] and trains((op, weight)) and weight not in weights[op]:
            weights[op].append(weight)
            needs[op] = True
    producers: list[dict[int, None]] = [{} for _ in range(ops)]
    for producer, consumer in _edges(graph):
        producers[consumer][producer] = None
    towards: list[list[int]] = [[] for _ in range(ops)]
    for op in graph.topological_order.tolist():
        if can[op]:
            towards[op] = [producer for producer in producers[op] if needs[producer] and sends((producer, op))]
            needs[op] |= bool(towards[op])
    return GradientFlow(graph, can, needs, towards, weights, inputs)
