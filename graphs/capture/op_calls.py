"""Calls: how to run each op of a captured graph alone, on any device.

`graphs.capture.forward` finds the ops of a module; here each keeps its ATen operation, its attributes, and in place of
every tensor that it reads a description of one like it. A backward op is its forward op's call and the tensors whose
gradients it computes; the loss is a sum, the update one fused Adam step.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import Node
from torch.utils._pytree import tree_leaves, tree_map

from graphs.capture.forward import Builder, traced_model
from graphs.capture.traced_nodes import is_getitem
from graphs.capture.training_step import training_step
from graphs.formats.graph_files import is_graph_file
from graphs.foundation.errors import InputError
from graphs.op_graph import RECOMPUTED, OpGraph, Phase
from graphs.op_graph.optimizers import UPDATE_TRAFFIC

aten = torch.ops.aten

FLOAT_BYTES = 4

# The dimension of the first operand that is the number of rows that an index may point at.
_ROWS = {aten.embedding: 0, aten.nll_loss_forward: 1, aten.nll_loss2d_forward: 1}
_ELSEWHERE = ("device", "layout", "pin_memory")  # attributes of where and how the output is stored


@dataclass(frozen=True)
class TensorLike:
    """A description of a tensor, enough to make one that takes as long to read."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    below: int = 2  # integers are from 0 to this, exclusive

    @property
    def elements(self) -> int:
        """How many elements its memory spans."""
        span = 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.stride, strict=True))
        return 0 if 0 in self.shape else span

    @property
    def storage_bytes(self) -> int:
        """How many bytes that is."""
        return self.elements * self.dtype.itemsize

    def __repr__(self) -> str:
        dense = torch.empty(self.shape, device="meta").stride()
        stride = "" if self.stride == dense else f"/{list(self.stride)}"
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}{stride}"


@dataclass(frozen=True, eq=False)
class OpCall:
    """One way of running one op alone."""

    kind: str
    function: Callable[..., Any]
    args: tuple[Any, ...]  # with a TensorLike in place of each tensor, as `kwargs`
    kwargs: dict[str, Any]
    outputs: tuple[int, ...] = ()  # which of several outputs are read; empty for an op with a single one
    gradients: tuple[int, ...] | None = None  # positions of the tensors whose gradients to compute; None: forward

    @property
    def signature(self) -> str:
        """Text that is equal for calls that take equally long."""
        attributes = "".join(f", {key}={value}" for key, value in self.kwargs.items() if key not in _ELSEWHERE)
        call = f"{self.kind}({', '.join(map(str, self.args))}{attributes})"
        if self.gradients is None:
            return call
        return f"{call} -> gradients of {', '.join(map(str, self.gradients)) or 'nothing'}"

    @property
    def tensors(self) -> list[TensorLike]:
        """What the call reads, by position."""
        return [leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, TensorLike)]


@dataclass(frozen=True, eq=False)
class CapturedCalls:
    """A captured graph, and how to run its ops."""

    graph: OpGraph
    calls: tuple[OpCall | None, ...]  # (ops,) None for those that neither compute nor read


@dataclass(frozen=True, eq=False)
class DistinctOp:
    """Ops of a graph that are the same ATen operation, with the same attributes, on tensors that are alike."""

    call: OpCall
    names: list[str]
    flops: float
    bytes_accessed: float
    times_forward: float  # the cost of a backward op, as a multiple of its forward op's


def distinct_ops(captured: CapturedCalls) -> list[DistinctOp]:
    """The distinct ops of a graph, in the order of their first one."""
    graph, found = captured.graph, dict[tuple[str, float, float], DistinctOp]()
    for op, call in enumerate(captured.calls):
        if call is not None:
            flops, traffic = float(graph.flops[op]), float(graph.bytes_accessed[op])
            key = (call.signature, flops, traffic)
            if key not in found:
                found[key] = DistinctOp(call, [], flops, traffic, _times_forward(graph, op))
            found[key].names.append(graph.names[op])
    return list(found.values())


def load_calls(what: str, *, training: bool = True) -> CapturedCalls:
    """The graph that is meant by a family spec or "file.py:callable", with the calls of its ops.

    Raises InputError for a graph file, which does not say how its ops are run, and as `load_graph` does.
    """
    if is_graph_file(what):
        remedy = "give the model that it was captured from, as file.py:callable or as a family spec"
        raise InputError(f"{what}: a graph file does not say how its ops are run; {remedy}")
    builder = traced_model(what)
    forward = builder.build()
    graph = training_step(forward) if training else forward
    return CapturedCalls(graph, tuple(_calls(builder, graph)))


def _calls(builder: Builder, graph: OpGraph) -> list[OpCall | None]:
    """(ops,) the calls of a graph whose first ops are those of the builder."""
    nodes: dict[int, Node] = {}
    for node, op in builder.op.items():
        nodes.setdefault(op, node)
    free = (graph.flops == 0) & (graph.bytes_accessed == 0)
    receivers = _receivers(graph)
    calls: list[OpCall | None] = []
    for op, kind in enumerate(graph.kinds):
        if free[op]:
            calls.append(None)
        elif op in nodes:
            calls.append(_forward(builder, nodes[op], kind))
        elif kind.endswith(RECOMPUTED):
            calls.append(calls[int(graph.mirror[op])])
        elif graph.phase[op] == Phase.UPDATE:
            calls.append(_update(int(graph.bytes_accessed[op] / UPDATE_TRAFFIC)))
        elif graph.mirror[op] < 0:
            calls.append(OpCall("loss", aten.sum.default, (_floats(int(graph.bytes_accessed[op])),), {}))
        else:
            calls.append(_backward(builder, nodes, calls, receivers[op], graph, op))
    return calls


def _receivers(graph: OpGraph) -> list[set[int]]:
    """(ops,) the forward ops that each backward op computes a gradient for."""
    found: list[set[int]] = [set() for _ in range(len(graph))]
    for producer, consumer in graph.edges[~graph.control & (graph.phase[graph.edges] == Phase.BACKWARD).all(axis=1)]:
        found[producer].add(int(graph.mirror[consumer]))
    return found


def _times_forward(graph: OpGraph, op: int) -> float:
    forward = int(graph.mirror[op])
    if forward < 0:
        return 1.0
    costs = graph.flops if graph.flops[forward] > 0 else graph.bytes_accessed
    return float(costs[op] / costs[forward]) if costs[forward] > 0 else 1.0


def _forward(builder: Builder, node: Node, kind: str) -> OpCall:
    below = _rows(node)

    def described(value: Any) -> Any:
        if isinstance(value, Node):
            value = value.meta["val"]
        if isinstance(value, Tensor):
            return TensorLike(tuple(value.shape), tuple(value.stride()), value.dtype, below)
        return value

    args, kwargs = tree_map(described, (tuple(node.args), dict(node.kwargs)))
    outputs: tuple[int, ...] = ()
    if not isinstance(node.meta["val"], Tensor):
        read = {user.args[1] for user in node.users if is_getitem(user) and user in builder.live}
        outputs = tuple(sorted(int(position) for position in read))  # type: ignore[arg-type]  # a getitem's position
    function: Callable[..., Any] = node.target  # type: ignore[assignment]  # of call_function nodes
    return OpCall(kind, function, args, kwargs, outputs)


def _backward(
    builder: Builder,
    nodes: dict[int, Node],
    calls: list[OpCall | None],
    receivers: set[int],
    graph: OpGraph,
    op: int,
) -> OpCall | None:
    """The gradients of what the forward op read: of other ops' outputs (".grad") or of weights (".grad_weight")."""
    mirrored = int(graph.mirror[op])
    forward = calls[mirrored]
    if forward is None:
        return None
    of_weights = graph.kinds[op].endswith(".grad_weight")
    if mirrored not in nodes:  # the loss reads one tensor
        return replace(forward, kind=graph.kinds[op], gradients=(0,))
    node = nodes[mirrored]
    trained = set(np.flatnonzero(graph.trained_weights).tolist())
    leaves = [leaf for leaf in tree_leaves((tuple(node.args), dict(node.kwargs))) if isinstance(leaf, Node)]
    reads = [leaf for leaf in leaves if isinstance(leaf.meta["val"], Tensor)]
    wanted = tuple(
        position
        for position, (read, tensor) in enumerate(zip(reads, forward.tensors, strict=True))
        if tensor.dtype.is_floating_point
        and (builder.weight_of(read) in trained if of_weights else builder.op.get(read) in receivers)
    )
    return replace(forward, kind=graph.kinds[op], gradients=wanted)


def _update(size: int) -> OpCall:
    """One tensor as large as all that the op updates: the weight, its gradient, two moments and the step's number."""
    weight = [_floats(size)]
    rates = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "eps": 1e-8}
    attributes = {**rates, "amsgrad": False, "maximize": False}
    tensors: tuple[Any, ...] = (weight, weight, weight, weight, [], [_floats(FLOAT_BYTES)])
    return OpCall("update", aten._fused_adam_.default, tensors, attributes)


def _floats(size: int) -> TensorLike:
    return TensorLike((max(size // FLOAT_BYTES, 1),), (1,), torch.float32)


def _rows(node: Node) -> int:
    """How many rows an index that a node reads may point at; where that is not known, a number that is always safe."""
    first = node.args[0] if node.args else None
    if not isinstance(first, Node) or not isinstance(first.meta.get("val"), Tensor):
        return 2
    shape = first.meta["val"].shape
    packet = getattr(node.target, "overloadpacket", None)
    if packet in _ROWS and len(shape) > _ROWS[packet]:
        return int(shape[_ROWS[packet]])
    return max(min(map(int, shape), default=2), 1)
