"""Capture: a PyTorch module becomes an op graph, without computing anything.

Tracing turns the module into ATen operations. These rules say which of them are ops, and what they cost:

- A parameter is not an op but a weight of the ops that read it, once, however many names it has. Inputs, buffers and
  constants are held by every device that reads them, and sent nowhere (`graphs.op_graph.held_tensors`), and so are
  parameters that no op reads, which have neither gradient nor optimizer state.
- A view of a whole tensor (reshape, transpose, expand, ...) is not an op: ops that read the view read the tensor.
- A view of a part (slice, chunk, select, ...) is an op that costs nothing and shares its tensor's device, so that
  only the part is sent to ops that read it elsewhere. A part of a weight or input is that weight or input.
- What PyTorch runs as one kernel is one op, though compilers would take it apart (`graphs.capture.exporting`).
- An op that no output depends on is left out, and so is an empty tensor that others are concatenated with.
- FLOPs are those of PyTorch's FLOP counter: products, convolutions and attention; all else costs memory traffic only.
- Memory traffic is every tensor read and written, once; of a table that is looked up, only the rows found.
- A look-up with sparse=True is of a kind of its own, "aten.embedding.sparse": its table's gradient is sparse.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from msgspec import structs
from torch import Tensor, nn
from torch.fx import Node

from graphs.capture.bags import bags_in
from graphs.capture.empty_operands import leave_out_empty
from graphs.capture.examples import Example, example_of
from graphs.capture.gradient_flow import autograd_of
from graphs.capture.held import HeldDraft, held_by
from graphs.capture.lifetimes import kept_alive
from graphs.capture.nested import first_dimension
from graphs.capture.program import TracedProgram
from graphs.capture.signing import Signer
from graphs.capture.traced_nodes import (
    bytes_of,
    flops_of,
    is_getitem,
    is_part,
    kind_of,
    multiplied_in,
    name_of,
    tensors_of,
    traffic,
    viewed,
)  # fmt: skip
from graphs.capture.tracing import trace
from graphs.capture.unsent import kept_bytes
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.op_graph.autograd import Autograd, Checkpoint
from graphs.op_graph.batch_law import BatchLaw
from graphs.op_graph.graph_draft import GraphDraft
from graphs.op_graph.held_tensors import HeldTensors

aten = torch.ops.aten
_log = logging.getLogger("placelab")


def capture(
    module: nn.Module, args: Sequence[object], kwargs: Mapping[str, object] | None = None, *, name: str
) -> OpGraph:
    """The forward pass of `module(*args, **kwargs)` as an op graph.

    Nothing is computed; on the meta device (`with torch.device("meta")`) nothing is allocated either.
    Where sizes or control flow depend on data, the module is run on that of its inputs (`graphs.capture.by_values`).
    Raises InputError for a module that cannot be traced; UserCodeError for one that fails on these inputs.
    """
    return traced(module, args, kwargs, name=name).build()


def traced(
    module: nn.Module, args: Sequence[object], kwargs: Mapping[str, object] | None = None, *, name: str
) -> Builder:
    """The module, traced, ready to become an op graph; raises as `capture` does."""
    return traced_example(Example(module, tuple(args), dict(kwargs or {}), name, first_dimension((args, kwargs))))


def traced_model(what: str) -> Builder:
    """The model of a family spec, or of a user's function, "path/to/file.py:callable", traced.

    Raises as `example_of` and `capture` do.
    """
    return traced_example(example_of(what))


def traced_example(example: Example) -> Builder:
    """A module and its example inputs, traced; raises as `capture` does."""
    with example.importing():
        program = trace(example.module, example.args, example.kwargs, name=example.name)
    existing = held_by(example)
    samples = example.samples or bags_in(program, existing)
    return Builder(program, example.name, samples, existing, in_eval=not example.module.training)


class Builder:
    """A traced module, whose nodes become ops, in order, and weights."""

    def __init__(
        self, program: TracedProgram, name: str, samples: int = 0, existing: Mapping[Tensor, str] | None = None, *,
        in_eval: bool = False,
    ) -> None:  # fmt: skip
        """`samples` is how many the inputs are, or 0 if that is not known.

        `existing` are all tensors that the module holds or is given, with their names, which are "" of inputs.
        """
        self.existing, self.in_eval = existing or {}, in_eval
        self.program, self.name, self.samples = program, name, samples
        self.draft = GraphDraft(self.weight_of)
        self.op = self.draft.op
        self.signer = Signer(program.requires_grad)
        self.weight: dict[Node, int] = {}  # the weight that a node is, or looks at
        self.seen: dict[nn.Parameter, int] = {}  # the weight of each parameter read so far
        leave_out_empty(program.nodes, program.requires_grad)
        self.live = _live(program)
        self._own: dict[Node, int] = {}  # the op that each node is, if it is no view
        self._sends: set[tuple[int, int]] = set()  # edges, as producer and consumer, that gradients flow back through
        self._trains: set[tuple[int, int]] = set()  # uses of weights, as op and weight, that give these a gradient
        self._asks: set[tuple[int, Node]] = set()  # uses of inputs and buffers that give these one

    def warn_of_eval(self) -> None:
        """Say so, before a training step is made of it, if the module was traced in the mode of `eval()`."""
        if self.in_eval:
            _log.warning(
                "%s is in eval() mode: its training step has no dropout, and running statistics in batch norm; call "
                "train() on it, or plan its forward pass with --no-training", self.name,
            )  # fmt: skip

    def build(self) -> OpGraph:
        """The op graph; to be called once."""
        for node in self.program.nodes:
            if node in self.live and node.op == "call_function":
                self._visit(node)
        if not self.draft.names:
            why = "the module returns no tensor that it computes; return its outputs or its loss"
            raise InputError(f"{self.name}: {why}")
        signatures = self.signer.signatures(self.op, self._base_weights(), len(self.draft.weights))
        law = BatchLaw(self.samples) if self.samples else None
        names = tuple(self.program.names.get(parameter, "") for parameter in self.seen)
        frozen = np.array([not parameter.requires_grad for parameter in self.seen], np.bool_)
        graph = replace(
            self.draft.built(self.name), batch_law=law, signatures=signatures, weight_names=names, frozen=frozen
        )
        own = {self._own[node] for node in self.program.own if node in self._own}
        leaves = {self.op[node] for node in self.program.leaves if node in self.op and not self._starts_anew(node)}
        trained = (self.op[node] for node in self.program.trained if node in self.op)
        inputs = {(op, self.signer.inputs[node]) for op, node in self._asks if node in self.signer.inputs}
        autograd = autograd_of(graph, self._sends, self._trains, trained, inputs=inputs, leaves=leaves, own=own)
        checkpoints = tuple(
            Checkpoint(ops=tuple(sorted(self._own[node] for node in part.nodes if node in self._own)), whole=part.whole)
            for part in self.program.checkpoints
        )
        kept = kept_alive(graph, self.program, self.op)
        if self.program.unknown or checkpoints or kept:
            autograd = structs.replace(
                autograd or Autograd(), checkpoints=checkpoints, kept_alive=kept, unknown=self.program.unknown
            )
        return replace(graph, autograd=autograd, held=self._held(graph), working_bytes=kept_bytes(graph, kept))

    def _held(self, graph: OpGraph) -> HeldTensors:
        """What ops read that none of them makes and is no weight, by number, and what the module holds in addition."""
        held = HeldDraft(graph, self.samples, self.existing)
        for node in self.signer.inputs:
            held.add(self.program.inputs.get(node, node.meta["val"]), bytes_of(tensors_of(node)))
        read = [self.program.inputs[node] for node in self.signer.inputs if node in self.program.inputs]
        return held.built([*self.seen, *read] if self.program.inputs else None)

    def _visit(self, node: Node) -> None:
        base, call = viewed(node), self.program.calls.get(node)
        if base is None:
            if tensors_of(node):
                costs = flops_of(node), traffic(node), self._used_bytes(node)
                reads = node.all_input_nodes
                self.draft.add_op(name_of(node), kind_of(node), costs, reads, [node], call, multiplied_in(reads[:1]))
                self.signer.add_op(node)
                self._note_autograd(node)
            return
        if tensors_of(node) and is_part(node, base) and base in self.op:
            size = bytes_of(tensors_of(node))
            self.draft.add_part(name_of(node), kind_of(node), size, node.all_input_nodes, node, call)
            self._note_autograd(node)
            if is_getitem(node):
                self.signer.add_op(base, int(str(node.args[1])))
            else:
                self.signer.add_op(node)
            return
        self.signer.add_view(node, base)
        if base in self.op:
            self.op[node] = self.op[base]
        elif (weight := self.weight_of(base)) is not None:
            self.weight[node] = weight

    def _note_autograd(self, node: Node) -> None:
        """Note a node that is an op, and what it sends gradients to."""
        self._own[node] = self.op[node]
        requires_grad = self.program.requires_grad
        for read in node.all_input_nodes if node in requires_grad else ():
            if read not in requires_grad or (read, node) in self.program.cuts or self._starts_anew(read):
                continue
            if read in self.op:
                self._sends.add((self.op[read], self.op[node]))
            elif (weight := self.weight_of(read)) is not None:
                self._trains.add((self.op[node], weight))
            else:
                self._asks.add((self.op[node], self.signer.base(read)))

    def _starts_anew(self, node: Node) -> bool:
        """Whether a view is given a gradient by itself, which does not reach the tensor that it shows.

        So `x.detach().requires_grad_()`, where x has a gradient of its own. That of the view is left out: nothing in
        the step reads it.
        """
        is_leaf = False
        while node not in self._own and (base := viewed(node)) is not None:
            is_leaf, node = is_leaf or node in self.program.leaves, base
        return is_leaf and node in self.program.requires_grad

    def given(self) -> dict[int, Tensor]:
        """The weights and inputs that the built graph reads, by their numbers among its sources of signatures.

        Inputs are left out of a module that was exported, as could not be recorded.
        """
        weights = {-1 - number: parameter for parameter, number in self.seen.items()}
        first = -1 - len(self.draft.weights)
        known = self.program.inputs
        return weights | {first - k: known[node] for node, k in self.signer.inputs.items() if node in known}

    def _base_weights(self) -> dict[Node, int]:
        """The nodes that are weights, and no views of such."""
        return {node: self.seen[each] for node, each in self.program.parameters.items() if each in self.seen}

    def weight_of(self, node: Node) -> int | None:
        """The weight that a node is, or looks at; one that is read for the first time is added."""
        if node in self.weight:
            return self.weight[node]
        parameter = self.program.parameters.get(node)
        if parameter is None:
            return None
        if parameter not in self.seen:
            self.seen[parameter] = self.draft.add_weight(bytes_of(tensors_of(node)), multiplied_in([node]))
        return self.seen[parameter]

    def _used_bytes(self, node: Node) -> float:
        """Bytes of the outputs that another op reads."""
        if isinstance(node.meta["val"], Tensor):
            return bytes_of([node.meta["val"]])
        used = {user.args[1] for user in node.users if is_getitem(user) and user in self.live}
        return bytes_of([node.meta["val"][i] for i in used])


def _live(program: TracedProgram) -> set[Node]:
    """The nodes that the module's outputs depend on; what updates buffers is left out."""
    stack = [*program.outputs, *program.states]
    live: set[Node] = set()
    while stack:
        node = stack.pop()
        if node not in live:
            live.add(node)
            stack.extend(node.all_input_nodes)
    return live
