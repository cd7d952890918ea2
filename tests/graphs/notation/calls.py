"""Calls of ATen operations that are written as expressions, with the tensors that they read."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph

from graphs.capture.signing import Signer
from graphs.notation.signatures import Signature


@dataclass(frozen=True)
class AtenCall:
    """A call, and what it returned."""

    signature: Signature
    tensors: list[Tensor]  # (reads,)
    output: Tensor

    def leaves(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Copies of what is read, or of parts of it, that ask for gradients where what is read does."""
        pairs = zip(tensors, self.tensors, strict=True)
        return [each.detach().clone().requires_grad_(given.requires_grad) for each, given in pairs]


def aten_call(expression: str) -> AtenCall:
    """The call that an expression such as "aten.mm(x(4, 6), x(6, 2))" makes; always of the same numbers."""
    draw = torch.Generator().manual_seed(0)
    expression, _, output = expression.removesuffix("]").partition(")[")
    output, expression = (output, f"{expression})") if output else ("0", expression)
    call = eval(
        expression,
        {
            "x": lambda *shape: torch.randn(shape, generator=draw, dtype=torch.float64).requires_grad_(),
            "p": lambda *shape: (torch.rand(shape, generator=draw, dtype=torch.float64) + 0.5).requires_grad_(),
            "c": lambda *shape: torch.rand(shape, generator=draw, dtype=torch.float64) + 0.5,
            "i": lambda below, *shape: torch.randint(below, shape, generator=draw),
            "b": lambda *shape: torch.rand(shape, generator=draw) < 0.5,
            "aten": _Aten(),
            "inf": math.inf,
            "float32": torch.float32,
        },
    )
    packet, args, kwargs = call
    graph, tensors = Graph(), list[Tensor]()

    def node_of(value: Any) -> Any:
        if isinstance(value, Tensor):
            tensors.append(value)
            placeholder = graph.placeholder(f"x{len(tensors)}")
            placeholder.meta["val"] = value
            return placeholder
        return [node_of(each) for each in value] if isinstance(value, list) else value

    node = graph.call_function(packet, tuple(map(node_of, args)), {key: node_of(each) for key, each in kwargs.items()})
    out = node.meta["val"] = packet(*args, **kwargs)
    signer = Signer(set())
    signer.add_op(node, int(output))
    [signature] = signer.signatures({}, {}, 0).distinct
    return AtenCall(signature, tensors, (out if isinstance(out, Tensor) else out[int(output)]).detach())


class _Aten:
    """In place of torch.ops.aten: a call returns the operation and its arguments."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: (getattr(torch.ops.aten, name), args, kwargs)
