"""GradientOps: which gradients the backward ops of a captured step compute, and which weights its updates write.

The graph says which op reads which (`graphs.capture.training_step`); here it is said of tensors:

    X.grad          the gradients of the results that X reads, each for the op that has made it
    X.grad_weight   those of the weights that X reads; to a weight's, the sum that a later user of it has made is added
    X.update        the new values of the weights whose gradients end there: that of a weight's first user
"""

from functools import cached_property

import numpy as np
from torch.fx import Node

from envs.running.captured_program import CapturedProgram
from graphs.foundation.errors import InputError
from graphs.op_graph import RECOMPUTED, OpGraph, Phase

_OF_WEIGHTS = ".grad_weight"


class GradientOps:
    """The backward, update and refresh ops of a graph, by their forward ops."""

    def __init__(self, program: CapturedProgram, graph: OpGraph) -> None:
        """Raises InputError for a graph that is not the program's, and for gradients that are not autograd's."""
        program.check(graph)
        program.check_parts(program.parts)
        self.program, self.graph = program, graph
        self.grad: dict[int, int] = {}  # forward op -> its .grad
        self.grad_weight: dict[int, int] = {}  # forward op -> its .grad_weight
        self.update: dict[int, int] = {}  # forward op -> its .update
        self.refresh: dict[int, int] = {}  # forward op -> its .refresh
        of_phase = {Phase.UPDATE: self.update, Phase.REFRESH: self.refresh}
        for op in np.flatnonzero(graph.phase != Phase.FORWARD).tolist():
            phase, mirror = Phase(graph.phase[op]), int(graph.mirror[op])
            if graph.kinds[op].endswith(RECOMPUTED):
                continue  # of a checkpoint, which a replay of the captured program does not make
            if phase is Phase.BACKWARD:
                (self.grad_weight if graph.kinds[op].endswith(_OF_WEIGHTS) else self.grad)[mirror] = op
            else:
                of_phase[phase][mirror] = op
        self._check()

    @cached_property
    def trained(self) -> frozenset[str]:
        """The weights that are updated, by name."""
        return frozenset(self.owner)

    @cached_property
    def weights(self) -> dict[int, tuple[str, ...]]:
        """By forward op the weights whose gradients its .grad_weight computes, by name."""
        names = self.program.step.weight_names  # those of a graph from a file may be unknown, and are in this order
        frozen = {names[weight] for weight in np.flatnonzero(self.graph.frozen)}
        return {
            op: tuple(name for name in self.program.trained_by(op) if name not in frozen) for op in self.grad_weight
        }

    @cached_property
    def added(self) -> dict[tuple[int, str], int]:
        """By forward op and weight the forward op whose .grad_weight has made the sum that it adds to."""
        added, latest = dict[tuple[int, str], int](), dict[str, int]()
        for op in sorted(self.grad_weight, key=self.grad_weight.__getitem__):
            for name in self.weights[op]:
                if name in latest:
                    added[op, name] = latest[name]
                latest[name] = op
        return added

    @cached_property
    def owner(self) -> dict[str, int]:
        """By name of a weight the forward op that makes the last sum of its gradient, and whose .update writes it."""
        owner = dict[str, int]()
        for op in sorted(self.grad_weight, key=self.grad_weight.__getitem__):
            owner.update(dict.fromkeys(self.weights[op], op))
        return owner

    @cached_property
    def owned(self) -> dict[int, tuple[str, ...]]:
        """By forward op the weights that its .update writes."""
        return {
            op: tuple(name for name in self.program.parts[op].weights.values() if self.owner.get(name) == op)
            for op in self.update
        }

    def has_gradient(self, result: Node) -> bool:
        """Whether the gradient of a result is computed: its op has a backward op, and autograd follows it."""
        op = self.program.op_of(result)
        return (op in self.grad or op in self.grad_weight) and result in self.program.differentiable

    def wanted(self, op: int) -> tuple[Node, ...]:
        """The results whose gradients the .grad of a forward op computes."""
        towards = self.program.towards(op)
        reads = self.program.parts[op].reads
        return tuple(node for node in reads if self.program.op_of(node) in towards and self.has_gradient(node))

    def sources(self, result: Node) -> tuple[int, ...]:
        """The forward ops whose .grad computes a part of the gradient of a result, in the order of autograd's sum.

        That begins with the op that ran last.
        """
        program, made_by = self.program, self.program.op_of(result)
        readers = reversed(program.readers.get(result, ()))
        return tuple(op for op in readers if op in self.grad and made_by in program.towards(op))

    def _check(self) -> None:
        program, edges = self.program, {tuple(edge) for edge in self.graph.edges.tolist()}
        for op, part in enumerate(program.parts):
            for node in part.reads:
                if (program.op_of(node), op) not in edges:
                    [buffer, *_] = part.updates
                    raise InputError(
                        f"buffer {buffer!r} is computed from results of several ops, {self.graph.names[op]!r} and "
                        f"{self.graph.names[program.op_of(node)]!r}, which may be on devices of their own; it cannot "
                        "be run op by op"
                    )
