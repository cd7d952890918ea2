"""Autograd functions as people write them, whose gradients are not those of their operations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Reversal(Function):
    """A view, with the gradient's sign changed (Ganin and Lempitsky 2015)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


class Doubled(Function):
    """The input itself, whose gradient is doubled."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * gradient


class Flat(Function):
    """A view of another shape."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.shape = x.shape
        return x.reshape(-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 3 * gradient.view(ctx.shape)


class Sign(Function):
    """One operation, with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.sign(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class Binary(Function):
    """Whether numbers are above zero, with the gradient of the identity, and a scale that gets none."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(scale)
        return (x > 0).to(x.dtype) * scale

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (scale,) = ctx.saved_tensors
        return gradient * scale, None


class Rounded(Function):
    """A step, with the gradient of the line through it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, steps: int = 4) -> Tensor:
        return torch.round(x * steps) / steps

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class Product(Function):
    """A linear layer with its own backward pass, which has its input without autograd's knowledge."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.x, ctx.weight = x, weight
        return x @ weight.T

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient @ ctx.weight, gradient.T @ ctx.x


class Swish(Function):
    """Several operations and results; its backward reads what was given and what was made between."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        gate = torch.sigmoid(y)
        ctx.save_for_backward(x, gate)
        return x * gate, gate + 1

    @staticmethod
    def backward(ctx: Any, of_product: Tensor, of_gate: Tensor) -> tuple[Tensor, Tensor]:
        x, gate = ctx.saved_tensors
        return of_product * gate, (of_product * x + of_gate) * gate * (1 - gate)


class InPlace(Function):
    """Changes its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x.mul_(2))
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 5 * gradient
