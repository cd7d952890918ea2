"""WeightMemory: what weights occupy for the whole step, and which ops make their gradients.

A gradient is held once. PyTorch's optimizers forget it after the update (`zero_grad(set_to_none=True)`), and the
backward pass of the next step makes it again: so it is the output of its op, held from the start of that until the end
of the update that reads it. Room is set aside for the whole step only for gradients that no op of the graph makes, as
in profiles of layers, whose backward ops make the gradients of inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graphs.op_graph import Bools, Floats, Ints, OpGraph, Phase
from graphs.op_graph.kinds import ends_with
from graphs.op_graph.precision import BYTES, SINGLE

_ROUNDING = 1e-6  # relative


def weight_gradients(graph: OpGraph) -> Bools:
    """(ops,) whether the output of each op is a gradient of weights, or a sum of such."""
    is_backward = graph.phase == Phase.BACKWARD
    consumer_phase = graph.phase[graph.edges[:, 1]]
    feeds_others, feeds_updates = np.zeros((2, len(graph)), np.bool_)
    feeds_others[graph.edges[consumer_phase < Phase.UPDATE, 0]] = True
    feeds_updates[graph.edges[consumer_phase >= Phase.UPDATE, 0]] = True
    named = ends_with(graph, ".grad_weight")
    return np.asarray(is_backward & (named | (feeds_updates & ~feeds_others)))


def weight_gradient_bytes(graph: OpGraph) -> Floats:
    """(weights,) bytes of the dense gradient of each weight; 0 of one that is not trained."""
    if not graph.gradient_precision:
        return graph.trained_weights
    own = np.array([BYTES[each] for each in graph.weight_precisions or (SINGLE,)])
    return graph.trained_weights * np.maximum(BYTES[graph.gradient_precision] / own, 1.0)


@dataclass(frozen=True, eq=False)
class WeightMemory:
    """What weights occupy on a device that reads them, besides the outputs of ops."""

    bytes: Floats  # (weights,) of each for the whole step: itself, its optimizer state, and room for its gradient
    gradients: Bools  # (ops,) whether the output of each is a gradient of weights, for which no room is set aside
    gradient_bytes: Floats  # (weights,) of the gradient of each that is such an output

    @classmethod
    def of(cls, graph: OpGraph, state_bytes: Floats) -> WeightMemory:
        """Of a graph, where each weight with its gradient and optimizer state takes `state_bytes`, (weights,).

        There is no room among these for gradients that hold only the rows that were read (`has_sparse_gradient`).
        """
        trained = graph.trained_weights
        op, weight = graph.weight_uses.T
        whole = np.bincount(op, trained[weight], minlength=len(graph))  # of the weights that each op reads
        made = weight_gradients(graph) & (graph.mirror >= 0)
        made &= graph.output_bytes >= whole[graph.mirror] * (1 - _ROUNDING)
        has_op = np.zeros(len(graph), np.bool_)
        has_op[graph.mirror[made]] = True
        has_room = (trained > 0) & (state_bytes > trained) & ~graph.has_sparse_gradient
        in_output = np.zeros(len(graph.weights), np.bool_)
        in_output[weight[has_op[op]]] = True
        in_output &= has_room
        is_held = np.zeros(len(graph), np.bool_)
        is_held[op[in_output[weight]]] = True
        gradient = np.where(in_output, weight_gradient_bytes(graph), 0.0)
        return cls(state_bytes - gradient, made & is_held[graph.mirror], gradient)

    def of_parts(self, weight: Ints, share: Floats) -> WeightMemory:
        """Of parts of weights, (parts,) the weight of each and the share of that."""
        return replace(self, bytes=self.bytes[weight] * share, gradient_bytes=self.gradient_bytes[weight] * share)

    def of_copies(self, op: Ints) -> WeightMemory:
        """Of ops that are copies of these, (copies,) the op of each, or -1 for none."""
        return replace(self, gradients=self.gradients[op] & (op >= 0))
