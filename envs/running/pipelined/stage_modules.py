"""Stage modules: the part of a captured model that a stage of a pipeline runs, as a module.

    stage 0                 stage 1                     stage 2
    a = ...                 b = f(a)                    loss = g(a, b)
    sends a          ->     receives a, sends a, b ->   receives a, b

A stage sends to the next one alone, so what a later stage reads is passed on by those in between. Inputs of the model
are not sent: each stage takes what it reads of the micro-batch's inputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.utils.checkpoint import checkpoint

from envs.running.captured_program import CapturedProgram
from envs.running.program_part import ProgramPart
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints, OpGraph

_BY_STORAGE = {torch.ops.aten.as_strided.default}  # views that depend on how a tensor is stored


@dataclass(frozen=True, eq=False)
class StageProgram:
    """What a stage runs of a captured model."""

    number: int
    part: ProgramPart
    received: tuple[Node, ...]  # from the stage before, in this order
    sent: tuple[Node, ...]  # to the next stage


def stage_programs(program: CapturedProgram, stage: Ints) -> list[StageProgram]:
    """What each stage runs; `stage` is that of each forward op, (forward ops,), and feeds no earlier one.

    Raises InputError if the loss is not in the last stage, or a buffer changes in another stage than reads it.
    """
    last, numbers = int(stage.max()), stage.tolist()
    if numbers[program.loss] != last:
        raise InputError(
            f"the loss is in stage {numbers[program.loss]}, and the last stage is {last}; put the last ops into the "
            "last stage"
        )
    parts = [program.part(op for op, own in enumerate(numbers) if own == number) for number in range(last + 1)]
    _check(program, parts)
    made = {node: numbers[program.op_of(node)] for part in parts for node in part.reads}
    needed = {node: number for number, part in enumerate(parts) for node in part.reads}  # the last stage to read each
    passing = [
        tuple(node for node in program.builder.program.nodes if made.get(node, last) < number <= needed.get(node, 0))
        for number in range(last + 2)
    ]
    return [StageProgram(number, part, passing[number], passing[number + 1]) for number, part in enumerate(parts)]


def _check(program: CapturedProgram, parts: Sequence[ProgramPart]) -> None:
    changed = {name: number for number, part in enumerate(parts) for name in part.updates}
    for number, part in enumerate(parts):
        for name in part.buffers.values():
            if changed.get(name, number) != number:
                raise InputError(
                    f"{program.example.name}: buffer {name!r} is read in stage {number} and changes in stage "
                    f"{changed[name]}; put the ops that use it into one stage"
                )
        if part.reads and any(node.target in _BY_STORAGE for node in part.nodes):
            raise InputError(
                f"{program.example.name}: stage {number} looks at a tensor by its place in memory (as_strided), which "
                "is another one where it was received; let the code use view, slices or strides of its own tensor"
            )


class StageModule(nn.Module):
    """A stage, called with what it receives; it returns what it sends, or the loss, if it is the last one.

    Weights and buffers have the names that they have in the model.
    """

    def __init__(
        self, program: CapturedProgram, stage: StageProgram, weights: Mapping[str, nn.Parameter], device: torch.device,
        carried: frozenset[Node], *, loss_scale: float, recompute: bool,
    ) -> None:  # fmt: skip
        """`weights` are those of the process by name, which its stages share; the loss is multiplied by `loss_scale`.

        Gradients are sent back for what is `carried`. With `recompute`, only what the stage is given is kept for the
        backward pass.
        """
        super().__init__()
        self._stage, self._carried, self._loss_scale, self._recompute = stage, carried, loss_scale, recompute
        part = stage.part
        self._run = (part.module(device),)  # in a tuple: it has no weights of its own
        for name in part.weights.values():
            _put(self, name, weights[name])
        for name in {*part.buffers.values(), *part.updates}:
            _put(self, name, program.buffers[name].detach().to(device, copy=True))
        self._constants = [constant.to(device) for constant in part.constants.values()]
        self._arriving, self._leaving = ([_stored(node) for node in nodes] for nodes in (stage.received, stage.sent))
        self._inputs: Sequence[Mapping[int, Tensor]] = ()
        self._micro_batch = 0

    def begin_step(self, inputs: Sequence[Mapping[int, Tensor]]) -> None:
        """Take the inputs of a step: of each micro-batch, by their leaves in the model's arguments."""
        self._inputs = inputs

    def begin_pass(self, micro_batch: int) -> None:
        """Say which micro-batch the next call is for."""
        self._micro_batch = micro_batch

    def forward(self, *received: Tensor) -> Tensor | tuple[Tensor, ...]:
        """What the stage sends, or the loss, one number."""
        stage, part = self._stage, self._stage.part
        known = dict(zip(stage.received, _taken(received, self._arriving), strict=True))
        tied = next((each for each in known.values() if each.requires_grad), None)
        inputs = self._inputs[self._micro_batch]
        given = (
            *(known[node] for node in part.reads), *map(self.get_parameter, part.weights.values()),
            *(inputs[leaf] for leaf in part.inputs.values()), *map(self.get_buffer, part.buffers.values()),
            *self._constants,
        )  # fmt: skip
        run = self._run[0]
        made = checkpoint(run, *given, use_reentrant=False) if self._recompute else run(*given)
        known |= zip(part.results, made, strict=False)
        for name, value in zip(part.updates, made[len(part.results) :], strict=False):
            _put(self, name, value.detach())
        if part.outputs:
            return _sendable(made[-1] * self._loss_scale, (), tied)
        return tuple(
            _sendable(known[node], order, tied)
            if node in self._carried
            else _sendable(known[node].detach(), order, None)
            for node, order in zip(stage.sent, self._leaving, strict=True)
        )


def trained_weights(program: CapturedProgram, graph: OpGraph) -> frozenset[str]:
    """The names of the weights that a step trains: those that neither the model nor the graph of the step freezes."""
    names = program.step.weight_names  # the graph has them in this order, and need not know the names
    frozen = {names[weight] for weight in np.flatnonzero(graph.frozen)}
    return frozenset(name for name, each in program.weights.items() if each.requires_grad and name not in frozen)


def carried(program: CapturedProgram, trained: frozenset[str]) -> frozenset[Node]:
    """The nodes that gradients are sent back through; `trained` are names of weights."""
    traced = program.builder.program
    found = {node for node, each in traced.parameters.items() if traced.names[each] in trained}
    for node in traced.nodes:
        if node in traced.requires_grad and not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return frozenset(found)


def examples(nodes: Sequence[Node], carried: frozenset[Node]) -> tuple[Tensor, ...]:
    """Tensors without data like those that are sent, for `PipelineStage`."""
    found = []
    for node in nodes:
        value = node.meta["val"].permute(_stored(node))
        like = torch.empty(value.shape, dtype=value.dtype, device="meta")
        found.append(like.requires_grad_(node in carried and value.dtype.is_floating_point))
    return tuple(found)


class _Sent(torch.autograd.Function):
    """A tensor as it is sent: contiguous and no view; to autograd it also depends on something that was received.

    PyTorch's runtime computes the gradients of a stage's inputs first, and finds those of its weights where their paths
    to the outputs meet those of the inputs. An output that depends on no input would have no such place. And it expects
    a gradient of each input that can have one, also where the stage reads it through `detach` alone.
    """

    @staticmethod
    def forward(context: Any, value: Tensor, order: tuple[int, ...], _: Tensor | None) -> Tensor:
        context.back = _inverse(order)
        stored = value.permute(order)
        return stored.detach() if stored.is_contiguous() else stored.contiguous()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient.permute(context.back), None, None


class _Received(torch.autograd.Function):
    """Tensors as the stage that made them stored them; their gradients, or zeros, are sent back as these came."""

    @staticmethod
    def forward(context: Any, orders: Sequence[tuple[int, ...]], *stored: Tensor) -> tuple[Tensor, ...]:
        context.orders = orders
        context.mark_non_differentiable(*(tensor for tensor in stored if not tensor.requires_grad))
        return tuple(tensor.permute(_inverse(order)) for tensor, order in zip(stored, orders, strict=True))

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        sent = [
            gradient.permute(order).contiguous() if needed else None
            for gradient, order, needed in zip(gradients, context.orders, context.needs_input_grad[1:], strict=True)
        ]
        return None, *sent


def _sendable(value: Tensor, order: tuple[int, ...], received: Tensor | None) -> Tensor:
    sent: Tensor = _Sent.apply(value, order, received if value.is_floating_point() else None)  # type: ignore[no-untyped-call]
    return sent


def _taken(stored: Sequence[Tensor], orders: Sequence[tuple[int, ...]]) -> tuple[Tensor, ...]:
    values: tuple[Tensor, ...] = _Received.apply(orders, *stored)  # type: ignore[no-untyped-call]
    return values


def _stored(node: Node) -> tuple[int, ...]:
    """The order in which a tensor's dimensions lie in memory, the longest stride first.

    In this order it is sent, without gaps, for processes send what is contiguous alone. So its reader has strides of
    the same order, on which views depend, and the strides of what ops such as attention make.
    """
    strides = node.meta["val"].stride()
    return tuple(sorted(range(len(strides)), key=lambda each: -strides[each]))


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def _put(module: nn.Module, name: str, tensor: Tensor) -> None:
    """Register a weight or a buffer under the name that it has in the model, such as "layers.0.weight"."""
    *path, own = name.split(".")
    for each in path:
        if each not in module._modules:
            module.add_module(each, nn.Module())
        module = module.get_submodule(each)
    if isinstance(tensor, nn.Parameter):
        module.register_parameter(own, tensor)
    else:
        module._buffers[own] = tensor
