"""Program: the order in which PyTorch issues a training step, on each device for itself.

- The forward pass runs in the order of the calls, in which captured graphs number their ops.
- The backward pass runs as autograd's engine takes its nodes: of those that are ready the one whose forward op came
  last, as its queue, one for each device, compares sequence numbers (`ReadyQueue`, torch/csrc/autograd/engine.cpp).
  A node computes the gradients of its operands in the alphabetical order of their names (torchgen's
  load_derivatives.py sorts them; derivatives.yaml has the names): of "addmm" that of its input first (mat1, mat2), of
  "mm" and "bmm" that of the weight (mat2, self). Gradients of a shared weight are added up as they come: the
  engine accumulates before all else, and here the sum is part of the op that computes a gradient.
- What a checkpoint runs again runs before the first backward op that reads it.
- The optimizer updates the weights after the backward pass, in the order of the parameters, which graphs number as they
  are read first; then other users of a weight receive its new value.

In a graph that is no training step, or whose backward ops do not say which forward op they belong to, ops run as they
are numbered, as far as the edges allow.

The simulator takes this as a priority among ops that are ready, and never lets a device wait for an earlier op while
a later one is ready. Streams of a GPU do: they run strictly in the order of issue. So a step under `program` is, but
for anomalies, a little faster than PyTorch's own.
"""

from dataclasses import dataclass

import numpy as np

from graphs.algorithms.order import ready_first
from graphs.foundation.per_object import once_per_object
from graphs.op_graph import Bools, Floats, Ints, OpGraph, Phase
from graphs.op_graph.kinds import by_kind, runs_again
from graphs.problem import Problem

# gradients of a second operand, which come before the first's
WEIGHT_FIRST = ("aten.mm.grad_weight", "aten.bmm.grad_weight")


@dataclass(frozen=True)
class ProgramOrder:
    """PyTorch's own order."""

    def priorities(self, problem: Problem, op_seconds: Floats) -> Floats:  # noqa: ARG002 - whatever ops cost
        """(ops,) the position at which each op is issued."""
        return _priorities(problem.graph).copy()


@once_per_object
def _priorities(graph: OpGraph) -> Floats:
    """(ops,) the position at which each op is issued."""
    position = _positions(graph)
    key = np.where(graph.phase == Phase.UPDATE, _first_weights(graph), position)
    backward = graph.phase == Phase.BACKWARD
    if _has_forward_op(graph)[backward].all():
        key[backward] = -position[graph.mirror[backward]]
        _as_read(graph, key)
    weight_first = by_kind(graph, lambda kind: kind in WEIGHT_FIRST)
    issued = np.lexsort((position, ~weight_first, key, graph.phase))
    priorities = np.empty(len(graph))
    priorities[issued] = np.arange(len(graph))
    return priorities


def _as_read(graph: OpGraph, key: Ints) -> None:
    """Ops of checkpoints run again for the first backward op that reads them: change their (ops,) keys to its key."""
    is_again = runs_again(graph)
    if not is_again.any():
        return
    producer, consumer = graph.edges[~graph.control].T
    while True:
        here = np.flatnonzero(is_again[producer])
        earliest = key.copy()
        np.minimum.at(earliest, producer[here], key[consumer[here]])
        if np.array_equal(earliest, key):
            return
        key[:] = earliest


def _positions(graph: OpGraph) -> Ints:
    """(ops,) the position of each op in a topological order, of what is ready always the op of least number."""
    positions = np.empty(len(graph), np.int64)
    positions[ready_first(graph.edges, np.arange(len(graph)))] = np.arange(len(graph))
    return positions


def _has_forward_op(graph: OpGraph) -> Bools:
    """(ops,) whether each op names a forward op that it belongs to."""
    named: Bools = (graph.mirror >= 0) & (graph.phase[graph.mirror] == Phase.FORWARD)
    return named


def _first_weights(graph: OpGraph) -> Ints:
    """(ops,) the first weight that each op, or its forward op, reads; the number of weights for none."""
    first = np.full(len(graph), len(graph.weights))
    ops, weights = graph.weight_uses.T
    np.minimum.at(first, ops, weights)
    of_mirror: Ints = np.where(graph.mirror >= 0, np.minimum(first, first[graph.mirror]), first)
    return of_mirror


build = ProgramOrder
