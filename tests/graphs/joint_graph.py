"""PyTorch's joint graph of the forward and backward pass, attributed to the ops of a captured graph.

Autograd runs on the captured program, node by node, on the meta device. What it dispatches is what would be traced into
a joint graph; seeing it run tells for certain which op of the capture each part belongs to. (The sequence numbers that
the nodes of a traced joint graph carry do not: an op that has no gradient carries its neighbour's.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import Node as AutogradNode
from torch.fx import Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import conv_flop_count, flop_registry

from graphs.capture.forward import Builder, traced
from graphs.capture.traced_nodes import is_getitem
from graphs.capture.training_step import training_step
from graphs.op_graph import OpGraph, Phase

aten = torch.ops.aten


@dataclass(eq=False)
class JointGraph:
    """What the backward pass of each op of a captured forward graph does; weight w stands among ops as -1 - w."""

    graph: OpGraph
    root: list[int]  # (ops,) the op whose memory the output lies in: another one for a part of a tensor
    towards: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))  # ops and weights it sends gradients
    flops: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    traffic: dict[int, float] = field(default_factory=lambda: defaultdict(float))  # bytes read and written
    saved: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))  # the ops whose outputs it reads
    hidden: set[int] = field(default_factory=set)  # ops that keep a result of theirs that no other op reads
    gradient_bytes: list[int] = field(default_factory=list)  # (weights,) how large the gradient of each is
    targets: list[object] = field(default_factory=list)  # what was dispatched, in order


def joint_graph(
    module: nn.Module,
    args: tuple[object, ...],
    *,
    name: str,
    kernels: Mapping[object, Callable[..., Any]] | None = None,
) -> JointGraph:
    """Runs `module`, which is on the meta device, and its backward pass; `kernels` are run in place of some ops."""
    builder = traced(module, args, name=name)
    graph = builder.build()
    replay = _Replay(builder, graph, dict(kernels or {}))
    with torch.enable_grad(), replay:
        replay.run_forward()
        replay.run_backward()
    return replay.joint


class _Replay(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation that autograd dispatches, and knows on behalf of which op."""

    def __init__(self, builder: Builder, graph: OpGraph, kernels: dict[object, Callable[..., Any]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.builder, self.program, self.kernels = builder, builder.program, kernels
        self.joint = JointGraph(graph, list(range(len(graph))))
        self.value: dict[Node, Any] = {}
        self.source: dict[int, tuple[int, bool]] = {}  # memory -> the op that wrote it, and whether it alone sees it
        self.owner: dict[AutogradNode, int] = {}  # the op whose gradient an autograd node computes
        self.running: int | None = None  # the op whose backward pass is running

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.joint.targets.append(func)
        if self.running is not None and self.running >= 0:
            self._count(self.running, func, args, kwargs or {}, out)
        return out

    def _count(self, op: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        self.joint.flops[op] += _flops(func, args, kwargs, out)
        read = _tensors((args, kwargs))
        if not func.is_view:
            self.joint.traffic[op] += sum(t.nbytes for t in (*read, *_tensors(out)))
        for tensor in read:
            source, is_hidden = self.source.get(_memory(tensor), (None, False))
            if source is not None and is_hidden:
                self.joint.hidden.add(source)
            elif source is not None:
                self.joint.saved[op].add(source)

    # ---- forward -----------------------------------------------------------------------------------------

    def run_forward(self) -> None:
        """Computes every node that an output depends on, and finds the op that each autograd node belongs to."""
        for node in self.program.nodes:
            if node.op == "placeholder":
                self.value[node] = self._input(node)
            elif node.op == "call_function" and node in self.builder.live:
                args, kwargs = tree_map_only(Node, self.value.__getitem__, (node.args, dict(node.kwargs)))
                kernel = self.kernels.get(node.target) or node.target
                self.value[node] = kernel(*args, **kwargs)  # type: ignore[operator]  # of call_function nodes
                self._note_memory(node)
                self._note_autograd_nodes(node)

    def _input(self, node: Node) -> Tensor:
        """The parameter that a node stands for, or a tensor like a buffer, a constant or an example input."""
        value: Tensor = self.program.parameters.get(node, node.meta["val"])
        return value

    def _note_memory(self, node: Node) -> None:
        op = self.builder.op.get(node)
        if op is None:
            return
        read = {user.args[1] for user in node.users if is_getitem(user) and user in self.builder.live}
        value = self.value[node]
        for position, part in enumerate(value if isinstance(value, (tuple, list)) else [value]):
            if isinstance(part, Tensor):
                is_hidden = part is not value and position not in read
                self.joint.root[op] = self.source.setdefault(_memory(part), (op, is_hidden))[0]

    def _note_autograd_nodes(self, node: Node) -> None:
        stack = [tensor.grad_fn for tensor in _tensors(self.value[node]) if tensor.grad_fn is not None]
        while stack:
            made = stack.pop()
            if made in self.owner:
                continue
            if made.name() == "torch::autograd::AccumulateGrad":
                self.owner[made] = -1 - self.builder.seen[made.variable]  # type: ignore[attr-defined]
            else:
                self.owner[made] = self.builder.op[node] if node in self.builder.op else -1 - self.builder.weight[node]
                stack.extend(before for before, _ in made.next_functions if before is not None)

    # ---- backward ----------------------------------------------------------------------------------------

    def run_backward(self) -> None:
        """The gradient of the sum of all outputs."""
        for made, owner in self.owner.items():
            made.register_prehook(self._before(owner))
            made.register_hook(self._after(made, owner))
        first, *others = (self.value[node].sum() for node in self.program.outputs if self.value[node].requires_grad)
        loss = sum(others, start=first)
        gradients = torch.autograd.grad(loss, list(self.builder.seen), materialize_grads=True)
        self.joint.gradient_bytes = [gradient.nbytes for gradient in gradients]

    def _before(self, owner: int) -> Callable[..., None]:
        def enter(gradients: object) -> None:
            self.running = owner

        return enter

    def _after(self, made: AutogradNode, owner: int) -> Callable[..., None]:
        def leave(sent: tuple[Tensor | None, ...], arrived: object) -> None:
            self.running = None
            for (before, _), gradient in zip(made.next_functions, sent, strict=True):
                if before is not None and gradient is not None:
                    self.joint.towards[owner].add(self.owner[before])

        return leave


def _flops(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> float:
    """As PyTorch's FLOP counter, but right for the weights of grouped convolutions, which it counts without groups."""
    count: Callable[..., Any] | None = flop_registry.get(func.overloadpacket)
    flops = float(count(*args, **kwargs, out_val=out)) if count else 0.0
    if func is aten.convolution_backward.default and args[9] > 1 and args[10][1]:
        image, gradient, weight = ([t.shape[1], t.shape[0], *t.shape[2:]] for t in (args[1], args[0], out[1]))
        flops -= conv_flop_count(image, gradient, weight) * (1 - 1 / args[9])
    return flops


def _tensors(value: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _memory(tensor: Tensor) -> int:
    """What is equal for tensors that share memory; as nothing of the forward pass is freed, for no others."""
    memory: int = tensor.untyped_storage()._cdata
    return memory


# ---- for a comparison --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Backward:
    """The backward pass op by op, with the names and kinds of ops in place of their numbers."""

    towards: set[tuple[str, str]]  # from which op to which op or weight a gradient is sent
    flops: dict[str, float]  # by op
    saved: set[tuple[str, str]]  # whose output is read for the gradients of what an op read


def ours(joint: JointGraph) -> Backward:
    """By the rules of the training step. A part of a tensor is taken for the tensor, as in `theirs`."""
    graph, root, name = joint.graph, joint.root, names(joint)
    step = training_step(graph)
    is_backward = (step.phase == Phase.BACKWARD) & (step.mirror < len(graph))  # the loss's is not compared
    mirror = {op: int(step.mirror[op]) for op in np.flatnonzero(is_backward).tolist()}
    flops = dict.fromkeys(range(len(graph)), 0.0)
    saved, towards = set[tuple[int, int]](), set[tuple[int, int]]()
    for op, forward in mirror.items():
        flops[forward] += step.flops[op]
        if step.kinds[op].endswith(".grad_weight"):
            towards |= {(root[forward], -1 - weight) for weight in weights_of(graph, forward)}
    for source, target in step.edges.tolist():
        if target in mirror and source < len(graph):
            saved.add((mirror[target], root[source]))
        elif target in mirror and source in mirror and step.kinds[source].endswith(".grad"):
            towards.add((root[mirror[source]], root[mirror[target]]))
    return Backward(
        {(name[op], name[to]) for op, to in towards if op != to},
        {name[op]: flops[op] for op in flops},
        {(name[op], name[source]) for op, source in saved},
    )


def theirs(joint: JointGraph) -> Backward:
    """By PyTorch's autograd."""
    name, root = names(joint), joint.root
    towards = {(root[op], root[to] if to >= 0 else to) for op in joint.towards if op >= 0 for to in joint.towards[op]}
    return Backward(
        {(name[op], name[to]) for op, to in towards if op != to},
        {name[op]: joint.flops.get(op, 0.0) for op in range(len(joint.graph))},
        {(name[op], name[source]) for op in joint.saved for source in joint.saved[op]},
    )


def names(joint: JointGraph) -> dict[int, str]:
    """What to call ops and weights, where a test fails."""
    graph = joint.graph
    ops = {op: f"{name} ({kind})" for op, (name, kind) in enumerate(zip(graph.names, graph.kinds, strict=True))}
    return ops | {-1 - weight: f"weight {weight}" for weight in range(len(graph.weights))}


def weights_of(graph: OpGraph, op: int) -> list[int]:
    """The weights that an op reads."""
    return [weight for user, weight in graph.weight_uses.tolist() if user == op]
