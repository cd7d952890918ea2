"""CapturedProgram: which ATen nodes each op of a captured model runs, and which tensors cross from op to op.

    captured nodes                       ops         read of other ops
    linear = addmm(b, x, w_view)         0  addmm
    parts = split(linear, ...)
    left, right = parts[0], parts[1]     1, 2        linear (the split is made again by each)
    seen = transpose(left)
    joined = cat([seen, right])          3  cat      left, right (the transpose is made by op 3)

Views (`graphs.capture.forward`) are no ops, so they are made where they are read. What crosses from one op to another
is a result: the output of an op, or one of several. The changes of buffers, such as running statistics, are made by the
op whose results they are computed from. Where the model's code stops gradients (`detach`, `no_grad`), parts do so, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.fx import Node

from envs.running.called_functions import why_not_called
from envs.running.differentiable import differentiable
from envs.running.program_part import ProgramPart
from envs.running.runnable import check_runnable
from graphs.capture.bags import read_by
from graphs.capture.examples import Example
from graphs.capture.forward import Builder, traced_example
from graphs.capture.gradient_flow import GradientFlow
from graphs.capture.nested import results_and_states, tensors_in, with_tensors
from graphs.capture.traced_nodes import is_getitem
from graphs.capture.training_step import training_step
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase


@dataclass(frozen=True, eq=False)
class CapturedProgram:
    """A captured model, op by op. The last op is the loss: the sum of the outputs that it reads."""

    example: Example
    builder: Builder
    step: OpGraph  # the training step of the model, whose first ops are those of its forward pass
    flow: GradientFlow  # where gradients flow in its backward pass
    parts: tuple[ProgramPart, ...] = field(init=False)
    """(forward ops,) each op by itself, the loss being the last one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self._parts()))

    @classmethod
    def of(cls, example: Example) -> CapturedProgram:
        """The program of a model. Raises InputError for one that cannot be captured, or not run part by part."""
        builder = traced_example(example)
        forward = builder.build()
        step = training_step(forward)
        check_runnable(example, builder.program)
        return cls(example, builder, step, GradientFlow.of(forward))

    def check_parts(self, parts: Sequence[ProgramPart]) -> None:
        """Raise InputError if some parts, which together are the model, do not have the gradients that it has.

        So it is if none of them can call a custom function, and if a hook changes gradients.
        """
        program = self.builder.program
        if program.hooks:
            at = f" at {program.hooks[0]}" if program.hooks[0] else ""
            raise InputError(
                f"{self.example.name}: a hook on gradients{at} is not captured, and op placements and pipelines run "
                "what was captured; run it by data parallelism or, in your own loop, with `parallelize`"
            )
        if program.unseen:
            raise InputError(
                f"{self.example.name}: {program.unseen[0]} changes a tensor in place where autograd does not see it "
                "(no_grad), and op placements and pipelines run operations with their gradients; make another tensor "
                "of it, or run it by data parallelism or, in your own loop, with `parallelize`"
            )
        given = program.parameters.keys() | self._buffer_nodes.keys() | self._leaf_nodes.keys()
        for call in program.own_calls:
            homes = sum(call in part.own_calls for part in parts)
            if homes and (why := why_not_called(call, homes, self.builder.live, given)):
                raise InputError(
                    f"{self.example.name}: {call.called} has a backward pass of its own, and {why}; run it by data "
                    "parallelism or, in your own loop, with `parallelize`"
                )

    def check(self, graph: OpGraph) -> None:
        """Raise InputError for a graph whose forward ops are not those of the model, with the same sizes."""
        own, forward = self.step, np.flatnonzero(graph.phase == Phase.FORWARD)
        if not graph.is_training:
            raise InputError(
                f"graph {graph.name!r} is a forward pass, and what is run is a training step; plan it without "
                "--no-training"
            )
        names = tuple(graph.names[op] for op in forward.tolist())
        if names != own.names[: self.loss + 1]:
            odd = next((name for name in names if name not in set(own.names)), f"{len(names)} ops")
            raise InputError(
                f"graph {graph.name!r} is not of this model: it has {odd!r} in its forward pass; plan the model that "
                "is to be run"
            )
        if more := set(graph.names) - set(own.names):
            raise InputError(
                f"graph {graph.name!r} has an op {min(more)!r} that the training step of this model does not have; "
                "plan the model that is to be run"
            )
        differs = np.flatnonzero(graph.output_bytes[forward] != own.output_bytes[: self.loss + 1])
        if len(differs):
            raise InputError(
                f"the output of {names[differs[0]]!r} has {graph.output_bytes[forward[differs[0]]]:.0f} bytes in graph "
                f"{graph.name!r}, and {own.output_bytes[differs[0]]:.0f} in the model; give both the same batch"
            )

    # ---- what there is -----------------------------------------------------------------------------------

    @property
    def loss(self) -> int:
        """The number of the op that turns outputs into one number; those of other forward ops are smaller."""
        return int(np.flatnonzero(self.step.phase == Phase.FORWARD)[-1])

    @cached_property
    def weights(self) -> dict[str, nn.Parameter]:
        """The parameters that the model has, by name, as they are in its module."""
        return dict(self.example.module.named_parameters())

    @cached_property
    def buffers(self) -> dict[str, Tensor]:
        """Its buffers by name, as they are in its module."""
        return dict(self.example.module.named_buffers())

    @cached_property
    def leaves(self) -> tuple[int, ...]:
        """The tensors in its arguments by their number (`nested.tensors_in`), each once."""
        first = dict[int, int]()
        for leaf, tensor in enumerate(self._given):
            first.setdefault(id(tensor), leaf)
        return tuple(first.values())

    @cached_property
    def repeated(self) -> dict[int, int]:
        """Leaves that are the same tensor as an earlier one, and that one: the program reads the earlier one alone."""
        own = {id(self._given[leaf]): leaf for leaf in self.leaves}
        first = {leaf: own[id(tensor)] for leaf, tensor in enumerate(self._given)}
        return {leaf: earlier for leaf, earlier in first.items() if leaf != earlier}

    @cached_property
    def _given(self) -> list[Tensor]:
        return tensors_in((self.example.args, self.example.kwargs))

    @cached_property
    def loss_outputs(self) -> tuple[int, ...]:
        """Which of the tensors that the model returns the loss adds up, by their position among these."""
        sinks = set(self.step.edges[self.step.edges[:, 1] == self.loss, 0].tolist())
        outputs, trained = self.builder.program.outputs, set(self.builder.program.trained)
        summed = [
            position for position, node in enumerate(outputs) if self.builder.op.get(node) in sinks and node in trained
        ]
        return tuple(summed)

    @property
    def returns_loss(self) -> bool:
        """Whether the model returns its loss, one number; a loss is taken for a mean over samples."""
        outputs = self.builder.program.outputs
        return len(self.loss_outputs) == 1 and outputs[self.loss_outputs[0]].meta["val"].numel() == 1

    # ---- the model itself --------------------------------------------------------------------------------

    def arguments(self, inputs: Mapping[int, Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the model is called with: tensors by number, and those of the example where none is given."""
        number = count()
        args, kwargs = with_tensors(
            (self.example.args, self.example.kwargs), lambda tensor: inputs.get(next(number), tensor)
        )
        return args, kwargs

    def inputs_of(self, computed: object) -> set[int]:
        """The inputs that a node is computed from, through whatever ops."""
        found = read_by(computed)
        return {leaf for node, leaf in self._leaf_nodes.items() if node in found}

    def loss_from(self, returned: object) -> Tensor:
        """The loss of what the model returned: the sum of all elements of those outputs that depend on a weight."""
        outputs, _ = results_and_states(returned)
        first, *others = [outputs[position].sum() for position in self.loss_outputs]
        return sum((each.to(first.device) for each in others), first)

    # ---- parts -------------------------------------------------------------------------------------------

    def part(self, ops: Iterable[int]) -> ProgramPart:
        """Several ops together, the loss among them or not: views and results between them stay inside."""
        chosen = frozenset(ops)
        part = self._part(chosen)
        read = {node for op, other in enumerate(self.parts) if op not in chosen for node in other.reads}
        return replace(part, results=self._sorted(read & self._made(chosen)))

    @cached_property
    def readers(self) -> Mapping[Node, tuple[int, ...]]:
        """The ops that read each result."""
        found: dict[Node, list[int]] = defaultdict(list)
        for op, part in enumerate(self.parts):
            for node in part.reads:
                found[node].append(op)
        return {node: tuple(ops) for node, ops in found.items()}

    @cached_property
    def differentiable(self) -> frozenset[Node]:
        """The results that have a gradient."""
        return differentiable(self.parts, {name for name, weight in self.weights.items() if weight.requires_grad})

    def towards(self, op: int) -> Container[int]:
        """The ops that a forward op sends gradients to, by their numbers; of the loss, those that it reads."""
        return self.flow.loss_reads if op == self.loss else self.flow.towards[op]

    def trained_by(self, op: int) -> tuple[str, ...]:
        """The weights that a forward op gives a gradient, by name, in the order in which it reads them."""
        if op == self.loss:
            return ()
        names = {self.step.weight_names[weight] for weight in self.flow.weights[op]}
        return tuple(name for name in self.parts[op].weights.values() if name in names)

    def op_of(self, result: Node) -> int:
        """The op that makes a result."""
        return self.builder.op[self._origin(result)]

    def _parts(self) -> list[ProgramPart]:
        alone = [self._part(frozenset([op])) for op in range(self.loss + 1)]
        made: dict[int, set[Node]] = defaultdict(set)
        for part in alone:
            for node in part.reads:
                made[self.op_of(node)].add(node)
        return [replace(part, results=self._sorted(made[op])) for op, part in enumerate(alone)]

    def _part(self, ops: frozenset[int]) -> ProgramPart:
        """Some ops, without saying which results of theirs others read."""
        outputs = [self.builder.program.outputs[position] for position in self.loss_outputs] if self.loss in ops else []
        updates = {name: node for name, node in self._updates.items() if self._update_home[name] in ops}
        shown = {position: node for position, node in self._shown.items() if self._latest_op(node) in ops}
        computed, read = set[Node](), set[Node]()
        stack = [*self._made(ops), *outputs, *updates.values(), *shown.values()]
        while stack:
            node = stack.pop()
            if node in computed or node in read:
                continue
            is_read = node.op == "placeholder" or (self._is_result(node) and self.op_of(node) not in ops)
            (read if is_read else computed).add(node)
            if not is_read:
                stack.extend(node.all_input_nodes)
        names = self.builder.program.names
        parameters, buffers, leaves = self.builder.program.parameters, self._buffer_nodes, self._leaf_nodes
        given = self._sorted(node for node in read if node.op == "placeholder")
        known = parameters.keys() | buffers.keys() | leaves.keys()
        return ProgramPart(
            ops,
            self._sorted(computed),
            self._sorted(node for node in read if node.op != "placeholder"),
            {node: names[parameters[node]] for node in given if node in parameters},
            {node: leaves[node] for node in given if node in leaves},
            {node: buffers[node] for node in given if node in buffers},
            {node: self._constant(node) for node in given if node not in known},
            (),
            tuple(outputs),
            updates,
            shown,
            self._stopped & computed,
            tuple(call for call in self.builder.program.own_calls if not computed.isdisjoint(call.nodes)),
            self.builder.program.cuts,
        )

    def _constant(self, node: Node) -> Tensor:
        value: Tensor = self.builder.program.inputs.get(node, node.meta["val"])
        return value

    # ---- nodes -------------------------------------------------------------------------------------------

    @cached_property
    def _stopped(self) -> set[Node]:
        """The nodes that have no gradient, though autograd would compute one: `detach`, or what runs in `no_grad`."""
        requires_grad, stopped, leaking = self.builder.program.requires_grad, set[Node](), set[Node]()
        for node in self.builder.program.nodes:
            reads = node.all_input_nodes
            if node in requires_grad or (requires_grad.isdisjoint(reads) and leaking.isdisjoint(reads)):
                continue
            value = node.meta["val"]
            if not isinstance(value, Tensor):
                leaking.add(node)  # its parts are stopped
            elif value.is_floating_point() or value.is_complex():
                stopped.add(node)
        return stopped

    @cached_property
    def _position(self) -> dict[Node, int]:
        return {node: position for position, node in enumerate(self.builder.program.nodes)}

    def _sorted(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        return tuple(sorted(nodes, key=self._position.__getitem__))

    @cached_property
    def _origins(self) -> dict[int, Node]:
        """By op the node that computes it."""
        origins: dict[int, Node] = {}
        for node, op in self.builder.op.items():
            origins.setdefault(op, node)
        return origins

    def _origin(self, node: Node) -> Node:
        """The node whose output a result is, or is one of."""
        if is_getitem(node) and self._origins.get(self.builder.op.get(node, -1)) is not node:
            return node.all_input_nodes[0]
        return node

    def _is_result(self, node: Node) -> bool:
        """Whether a node is what an op makes, and no view of it.

        One of several outputs may be none of the graph's nodes: only the change of a buffer reads it.
        """
        origin = self._origin(node)
        return (
            isinstance(node.meta.get("val"), Tensor)
            and origin in self.builder.op
            and self._origins[self.builder.op[origin]] is origin
        )

    def _made(self, ops: Iterable[int]) -> set[Node]:
        """The results of ops, as far as anything live reads them, or an update does."""
        nodes = self._results
        return {node for op in ops for node in nodes.get(op, ())}

    @cached_property
    def _results(self) -> dict[int, list[Node]]:
        """By op its results that outputs depend on, or changes of buffers."""
        needed = set(self.builder.live)
        for node in self._updates.values():
            needed |= self._cone(node)
        results: dict[int, list[Node]] = defaultdict(list)
        for node in needed:
            if node.op == "call_function" and self._is_result(node):
                results[self.op_of(node)].append(node)
        return results

    # ---- what is given, and what changes -----------------------------------------------------------------

    @cached_property
    def _buffer_nodes(self) -> dict[Node, str]:
        names = {id(tensor): name for name, tensor in self.buffers.items()}
        return {node: names[id(t)] for node, t in self.builder.program.inputs.items() if id(t) in names}

    @cached_property
    def _leaf_nodes(self) -> dict[Node, int]:
        own = {id(self._given[leaf]): leaf for leaf in self.leaves}
        found = self.builder.program.inputs
        return {node: own[id(t)] for node, t in found.items() if id(t) in own and node not in self._buffer_nodes}

    @cached_property
    def _updates(self) -> dict[str, Node]:
        """The new values of buffers, by name."""
        return {name: node for name, node in (self.builder.program.changed or {}).items() if node is not None}

    @cached_property
    def _update_home(self) -> dict[str, int]:
        """The op with which each of them is computed: that of the latest result that it needs.

        One that needs none goes with the first op of its module, or else with the first of all.
        """
        return {name: self._latest_op(node, self._first_op(name)) for name, node in self._updates.items()}

    @cached_property
    def _shown(self) -> dict[int, Node]:
        """By their positions the outputs that are no part of the loss; the op of the latest result makes them, too."""
        outputs = enumerate(self.builder.program.outputs)
        return {position: node for position, node in outputs if position not in self.loss_outputs}

    def _latest_op(self, node: Node, otherwise: int = 0) -> int:
        """The op that makes the latest result that a node needs."""
        return max((self.op_of(each) for each in self._cone(node) if self._is_result(each)), default=otherwise)

    def _cone(self, node: Node) -> set[Node]:
        """What a node needs that is no op, down to the results of ops."""
        found, stack = set[Node](), [node]
        while stack:
            each = stack.pop()
            if each not in found:
                found.add(each)
                if not (each.op == "call_function" and self._is_result(each)):
                    stack.extend(each.all_input_nodes)
        return found

    def _first_op(self, buffer: str) -> int:
        module = buffer.rpartition(".")[0]
        own: Sequence[int] = [
            op for op, node in self._origins.items() if list(node.meta["nn_module_stack"].values())[-1][0] == module
        ]
        return min(own, default=0)
