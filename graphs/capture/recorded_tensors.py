"""Tensors of a recorded module: those that it holds or is given, and what it holds after it has run."""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.fx import Node

from graphs.capture.nested import tensors_in
from graphs.capture.recorded_calls import PLAIN_TENSORS, Unrecorded
from graphs.capture.stand_ins import StandIns


def given_tensors(module: nn.Module, inputs: object) -> list[Tensor]:
    """All tensors that a module holds or is given. Raises Unrecorded for those of other classes than torch.Tensor."""
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        raise Unrecorded("a part of it is a ScriptModule, which shows no operations; give the module it was made of")
    given = [*module.parameters(), *module.buffers(), *tensors_in(inputs)]
    for tensor in given:
        if type(tensor) not in PLAIN_TENSORS:
            raise Unrecorded(f"it holds or is given a {type(tensor).__name__}")
    return given


def inputs_among(placeholders: Mapping[int, Node], stand_ins: StandIns) -> dict[Node, Tensor]:
    """The input, buffer or constant that a node stands for; `placeholders` are by the ids of stand-ins."""
    return {
        placeholders[id(stand_in)]: tensor
        for tensor, stand_in in stand_ins.pairs()
        if id(stand_in) in placeholders and not isinstance(tensor, nn.Parameter)
    }


def changed_by(
    module: nn.Module,
    before: Mapping[str, Tensor],
    stand_ins: StandIns,
    placeholders: Mapping[int, Node],
    read: Callable[[Iterable[Tensor]], list[Node]],
) -> dict[str, Node | None]:
    """What a module that has run holds in place of the buffers and parameters that it had before, by name."""
    changed: dict[str, Node | None] = {}
    held: dict[str, Tensor] = {**dict(module.named_buffers()), **dict(module.named_parameters())}
    for name, tensor in before.items():
        stand_in, now = stand_ins(tensor), held.get(name)
        placed = placeholders.get(id(stand_in))
        if now is None or (now is stand_in and placed is None):  # it holds none any more; it was never read
            continue
        try:
            [node] = read([now])
        except Unrecorded:
            changed[name] = None
        else:
            if node is not placed:
                changed[name] = node
    return changed
