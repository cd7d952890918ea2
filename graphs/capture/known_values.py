"""Known values: what a module's code asks of a tensor is answered where only inputs, buffers and constants decide it.

`mask.all()`, or positions that follow each other: libraries ask such questions before they choose a kernel, as
transformers does before it builds a mask for attention. The operations behind the tensor, which are written down
already, are computed then, on the values that the tensors have which they start from. An input on the meta device has
none: random data stand in for them (`graphs.capture.random_data`). What depends on a parameter is not answered.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

from graphs.capture.random_data import drawn
from graphs.capture.traced_nodes import base_of, tensors_of

MOST_ELEMENTS = 2**24  # that are computed for one answer, or kept for the next ones
FIRST_STEP = "the first step"


@dataclass(frozen=True, eq=False)
class Answer:
    """What the module's code was told of a tensor that its inputs decide, or what the module changes itself."""

    asked: Node  # whose value it is
    value: Tensor
    data: str  # whose values decided it: "the example", "random data" of inputs, "the first step" of what changes
    at: str  # where it was asked, " at model.py:12", or "" if that is not known


class KnownValues:
    """Values of the nodes of a graph that is being written, and what was told of them."""

    def __init__(self, module: nn.Module, inputs: Sequence[Tensor]) -> None:
        """`inputs` are the tensors that the module is called with."""
        self._module, self._kept = module, _attributes(module)
        self._inputs = {id(tensor) for tensor in inputs}
        self._given: dict[Node, Tensor] = {}  # the tensor that a placeholder stands for
        self._written = set[Node]()  # placeholders whose tensors are written in place
        self._values: dict[Node, Any] = {}  # of what was computed so far
        self._elements = 0  # of these
        self._data: dict[Node, str] = {}  # whose values of inputs decide a node, "" if none do
        self._answers = list[Answer]()

    def note(self, placeholder: Node, tensor: Tensor) -> None:
        """Note what a placeholder of the graph stands for."""
        self._given[placeholder] = tensor

    def note_written(self, node: Node) -> None:
        """Note that the tensor whose value a node has been is written in place."""
        self._written.add(base_of(node))

    def answer(self, node: Node, at: str) -> Tensor | None:
        """The value of a node, which is asked for somewhere; None if it is not known."""
        new = _behind([node], self._values)
        if self._elements + (more := _elements(new)) > MOST_ELEMENTS:
            self._values.clear()
            self._elements, new = 0, _behind([node])
            if (more := _elements(new)) > MOST_ELEMENTS:
                return None
        self._elements += more
        for each in new:
            if each.op == "placeholder" and (tensor := self._value(each)) is not None:
                self._values[each] = tensor
            self._data[each] = self._decided_by(each)
        value = computed(node, self._values)
        if value is None:
            return None
        self._answers.append(Answer(node, value, self._data[node], at))
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            return value.clone()  # which the code may change, as an array of NumPy

    def told(self, changed: Collection[Tensor]) -> list[Answer]:
        """The answers that another batch may change, or a later step; `changed` are buffers that the module changes."""
        ids = {id(tensor) for tensor in changed} | (self._kept.keys() - _attributes(self._module).keys())
        changing = {
            node
            for node, tensor in self._given.items()
            if (node in self._written or id(tensor) in ids) and id(tensor) not in self._inputs
        }
        for node in _behind(each.asked for each in self._answers):
            changing |= {node} if not changing.isdisjoint(node.all_input_nodes) else set()
        answers = (replace(each, data=FIRST_STEP) if each.asked in changing else each for each in self._answers)
        return [each for each in answers if each.data]

    def _value(self, placeholder: Node) -> Tensor | None:
        tensor = self._given[placeholder]
        if isinstance(tensor, nn.Parameter) or (tensor.is_meta and id(tensor) not in self._inputs):
            return None
        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.random.fork_rng(devices=()):
            if tensor.is_meta:  # on the CPU alone: other devices draw as if nothing was asked
                torch.default_generator.manual_seed(list(self._given).index(placeholder))
            return _on_cpu(drawn(tensor, "cpu"))

    def _decided_by(self, node: Node) -> str:
        if node.op == "placeholder":
            tensor = self._given[node]
            is_input = id(tensor) in self._inputs
            return "" if not is_input else "random data" if tensor.is_meta else "the example"
        return max((self._data[each] for each in node.all_input_nodes), key=_DATA.index, default="")


def _attributes(module: nn.Module) -> dict[int, Tensor]:
    """The tensors that the parts of a module have as plain attributes, by their ids."""
    found = (each for part in module.modules() for each in vars(part).values() if isinstance(each, Tensor))
    return {id(tensor): tensor for tensor in found}


_DATA = ("", "the example", "random data")  # each more than those before it


def starts(nodes: Iterable[Node]) -> list[Node]:
    """The placeholders that the values of nodes are computed from."""
    return [each for each in _behind(nodes) if each.op == "placeholder"]


def values_of(given: Mapping[Node, Tensor]) -> dict[Node, Any]:
    """Values of placeholders, which others are computed from (`computed`)."""
    return {node: _on_cpu(tensor) for node, tensor in given.items()}


def computed(node: Node, values: dict[Node, Any]) -> Tensor | None:
    """The value of a node, of those that are known already, `values`, which get all that is computed for it.

    None if a placeholder is not known, or an operation gives something else each time, or none on the CPU.
    """
    nodes = _behind([node], values)
    if any(each.op == "placeholder" or not _is_certain(each) for each in nodes):
        return None
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        for each in nodes:
            args, kwargs = tree_map(partial(_argument, values), (tuple(each.args), dict(each.kwargs)))
            try:
                values[each] = each.target(*args, **kwargs)  # type: ignore[operator]  # an operation
            except (RuntimeError, NotImplementedError, IndexError):
                return None
    value: Tensor = values[node]
    return value


def _on_cpu(tensor: Tensor) -> Tensor:
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        return tensor.detach().cpu()


def _argument(values: Mapping[Node, Any], argument: Any) -> Any:
    if isinstance(argument, Node):
        return values[argument]
    return torch.device("cpu") if isinstance(argument, torch.device) else argument


def _is_certain(node: Node) -> bool:
    """Whether an operation gives the same each time."""
    return torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ())


def _elements(nodes: Iterable[Node]) -> int:
    return sum(tensor.numel() for each in nodes for tensor in tensors_of(each))


def _behind(nodes: Iterable[Node], known: Container[Node] = ()) -> list[Node]:
    """Nodes and all that they are computed from, each after those that it reads; nothing that is known already."""
    stack = [node for node in nodes if node not in known]
    found = set(stack)
    while stack:
        new = {each for each in stack.pop().all_input_nodes if each not in known} - found
        found |= new
        stack.extend(new)
    return sorted(found)
