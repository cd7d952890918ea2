"""Signing: the signatures of ops, from the nodes of a traced module."""

import math
import operator
from collections.abc import Container, Mapping
from typing import Any

import msgspec
import numpy as np
from torch import Tensor
from torch.fx import Node

from graphs.capture.gradient_flow import detaches
from graphs.notation.signatures import READ, Read, Shape, Signature, Signatures, View

_ELSEWHERE = {"device", "layout", "pin_memory", "memory_format"}  # where and how outputs are stored


class Signer:
    """Notes what each op reads, through which views, while a module's nodes become ops."""

    def __init__(self, sends: Container[Node]) -> None:
        """`sends` are the nodes through whose outputs gradients are sent."""
        self._sends = sends
        self.inputs: dict[Node, int] = {}  # the number of each input that ops read, once `signatures` has been called
        self._distinct: dict[bytes, int] = {}
        self._signatures: list[Signature] = []
        self._of: list[int] = []
        self._reads: list[list[Node]] = []  # (ops,) the nodes that are at the source of what each op reads
        self._viewed: dict[Node, tuple[Node, tuple[View, ...]]] = {}  # what a node is a view of, and how

    def add_op(self, node: Node, output: int = 0) -> None:
        """Note the op that comes next: a node or, with `output`, one part of what a node splits."""
        reads = list[Node]()
        arguments = tuple(_plain(argument, reads) for argument in node.args)
        named = {key: _plain(value, reads) for key, value in node.kwargs.items() if key not in _ELSEWHERE}
        value = node.meta["val"]
        outputs = list(value) if isinstance(value, (tuple, list)) else [value]
        shapes = tuple(_shape(each) if isinstance(each, Tensor) else None for each in outputs)
        dtype = next((_dtype(each) for each in outputs if isinstance(each, Tensor)), "")
        signature = Signature(_function(node), tuple(map(self._read, reads)), shapes, dtype, arguments, named, output)
        key = msgspec.msgpack.encode(signature)
        number = self._distinct.setdefault(key, len(self._signatures))
        if number == len(self._signatures):
            self._signatures.append(signature)
        self._of.append(number)
        self._reads.append([self.base(read) for read in reads])

    def add_view(self, node: Node, base: Node) -> None:
        """Note that a node is a view of another one."""
        origin, views = self._base(base)
        value, arguments = node.meta["val"], tuple(_plain(argument, []) for argument in node.args[1:])
        shape = _shape(value) if isinstance(value, Tensor) else ()
        self._viewed[node] = origin, (*views, View(self._view(node, base), shape, arguments))

    def _view(self, node: Node, base: Node) -> str:
        """The function that makes a view: `detach` is an alias, unless it stops a gradient."""
        stops = base in self._sends and node not in self._sends
        return "aten.alias" if detaches(node.target) and not stops else _function(node)

    def signatures(self, op: Mapping[Node, int], weight: Mapping[Node, int], weights: int) -> Signatures:
        """Those of all ops; `op` and `weight` say which nodes are ops and weights."""
        sources = list[int]()
        for read in (node for nodes in self._reads for node in nodes):
            if read in op:
                sources.append(op[read])
            elif read in weight:
                sources.append(-1 - weight[read])
            else:
                sources.append(-1 - weights - self.inputs.setdefault(read, len(self.inputs)))
        offsets = np.append(0, np.cumsum(np.array([len(nodes) for nodes in self._reads], np.int64)))
        return Signatures(tuple(self._signatures), np.array(self._of), offsets, np.array(sources, np.int64))

    def base(self, node: Node) -> Node:
        """The node that is no view whose memory a node looks at."""
        return self._base(node)[0]

    def _base(self, node: Node) -> tuple[Node, tuple[View, ...]]:
        return self._viewed.get(node, (node, ()))

    def _read(self, node: Node) -> Read:
        base, views = self._base(node)
        value = base.meta["val"]
        shape = _shape(value) if isinstance(value, Tensor) else _shape(value[0])
        return Read(_shape(node.meta["val"]), _dtype(node.meta["val"]), shape, views)


def _plain(value: Any, reads: list[Node]) -> Any:
    """An argument as it is kept: numbers, text, and lists of these; tensors are added to `reads`."""
    if isinstance(value, Node):
        if not isinstance(value.meta.get("val"), Tensor):
            return None
        reads.append(value)
        return {READ: len(reads) - 1}
    if isinstance(value, (tuple, list)):
        return [_plain(each, reads) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}  # a file of JSON has no infinity
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value).removeprefix("torch.")  # a type of data; a complex number


def _function(node: Node) -> str:
    target = node.target
    return "getitem" if target is operator.getitem else str(getattr(target, "overloadpacket", target))


def _shape(tensor: Tensor) -> Shape:
    return tuple(map(int, tensor.shape))


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
