"""Known values: what a module's code asks of a tensor is answered where only inputs, buffers and constants decide it.

`mask.all()`, or positions that follow each other: libraries ask such questions before they choose a kernel, as
transformers does before it builds a mask for attention. The operations behind the tensor, which are written down
already, are computed then, on the values that the tensors have which they start from. An input on the meta device has
none: random data stand in for them (`graphs.capture.random_data`). What depends on a parameter is not answered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

from graphs.capture.random_data import drawn
from graphs.capture.traced_nodes import tensors_of

MOST_ELEMENTS = 2**24  # that are computed for one answer


@dataclass(frozen=True, eq=False)
class Answer:
    """What the module's code was told of a tensor that its inputs decide."""

    asked: Node  # whose value it is
    value: Tensor
    data: str  # whose values of the inputs they are: "the example", "random data"
    line: str  # that asks


class KnownValues:
    """Values of the nodes of a graph that is being written."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        """`inputs` are the tensors that the module is called with."""
        self._inputs = {id(tensor) for tensor in inputs}
        self._given: dict[Node, Tensor] = {}  # the tensor that a placeholder stands for

    def note(self, placeholder: Node, tensor: Tensor) -> None:
        """Note what a placeholder of the graph stands for."""
        self._given[placeholder] = tensor

    def of(self, node: Node) -> tuple[Tensor, str] | None:
        """The value of a node, and whose values of inputs decide it: "" if none do; None if it is not known."""
        inputs = {each for each in starts(node) if id(self._given[each]) in self._inputs}
        started = {each: self._value(each, is_input=each in inputs) for each in starts(node)}
        value = computed(node, {each: tensor for each, tensor in started.items() if tensor is not None})
        if value is None or not inputs:
            return None if value is None else (value, "")
        return value, "random data" if any(self._given[each].is_meta for each in inputs) else "the example"

    def _value(self, placeholder: Node, *, is_input: bool) -> Tensor | None:
        tensor = self._given[placeholder]
        if isinstance(tensor, nn.Parameter) or tensor.numel() > MOST_ELEMENTS or (tensor.is_meta and not is_input):
            return None
        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            return drawn(tensor.detach(), "cpu")


def starts(node: Node) -> list[Node]:
    """The placeholders that the value of a node is computed from."""
    return [each for each in _behind(node) if each.op == "placeholder"]


def computed(node: Node, given: Mapping[Node, Tensor]) -> Tensor | None:
    """The value of a node, of those of its placeholders; None if one is missing, or it is too much to be computed."""
    nodes = _behind(node)
    is_known = all(each in given if each.op == "placeholder" else _is_certain(each) for each in nodes)
    if not is_known or sum(tensor.numel() for each in nodes for tensor in tensors_of(each)) > MOST_ELEMENTS:
        return None
    values: dict[Node, Any] = {}
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        for each in nodes:
            if each.op == "placeholder":
                values[each] = given[each].cpu()
                continue
            args, kwargs = tree_map(partial(_argument, values), (tuple(each.args), dict(each.kwargs)))
            try:
                values[each] = each.target(*args, **kwargs)  # type: ignore[operator]  # an operation
            except (RuntimeError, NotImplementedError):  # none of the CPU's
                return None
    value: Tensor = values[node]
    return value


def _argument(values: Mapping[Node, Any], argument: Any) -> Any:
    if isinstance(argument, Node):
        return values[argument]
    return torch.device("cpu") if isinstance(argument, torch.device) else argument


def _is_certain(node: Node) -> bool:
    """Whether an operation gives the same each time."""
    return torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ())


def _behind(node: Node) -> list[Node]:
    """A node and all that it is computed from, each after those that it reads."""
    found, stack = {node}, [node]
    while stack:
        new = set(stack.pop().all_input_nodes) - found
        found |= new
        stack.extend(new)
    return sorted(found)
