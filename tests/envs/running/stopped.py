"""Models that stop gradients, or have gradients of their own, as people write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

WIDTH, BATCH = 8, 4


class Three(nn.Module):
    """Three layers, and a loss of them."""

    def __init__(self, loss: Callable[[Three, Tensor], Any], *frozen: str) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.codes = nn.Parameter(torch.randn(16, WIDTH) / 4)
        self.loss = loss
        for name in frozen:
            self.get_submodule(name).requires_grad_(False)

    def forward(self, x: Tensor) -> Any:
        return self.loss(self, x)


def _detach(m: Three, x: Tensor) -> Tensor:
    h = torch.tanh(m.a(x))
    return F.mse_loss(m.b(h), m.c(h.detach()))


def _teacher(m: Three, x: Tensor) -> Tensor:
    """As of BYOL or DINO: another net makes what is to be learned."""
    with torch.no_grad():
        wanted = torch.tanh(m.c(x))
    return F.mse_loss(m.b(torch.tanh(m.a(x))), wanted)


def _own_teacher(m: Three, x: Tensor) -> Tensor:
    """The weights of the teacher are those of the student."""
    with torch.no_grad():
        wanted = m.b(torch.tanh(m.a(x + 0.1)))
    return F.mse_loss(m.b(torch.tanh(m.a(x))), wanted) + m.c(x).square().mean()  # type: ignore[no-any-return]


def _straight_through(m: Three, x: Tensor) -> Tensor:
    h = m.a(x)
    rounded = h + (torch.round(h * 4) / 4 - h).detach()
    return m.b(rounded).square().mean() + m.c(rounded).abs().mean()  # type: ignore[no-any-return]


def _quantised(m: Three, x: Tensor) -> Tensor:
    """As of a VQ-VAE."""
    z = m.a(x)
    nearest = m.codes[torch.cdist(z.detach(), m.codes.detach()).argmin(1)]
    straight = z + (nearest - z).detach()
    return F.mse_loss(m.b(straight), x) + F.mse_loss(nearest, z.detach()) + 0.25 * F.mse_loss(z, nearest.detach())


def _adversarial(m: Three, x: Tensor) -> list[Tensor]:
    """As of a GAN whose losses are added up: what is made is judged twice, once without a gradient to who made it."""
    made = torch.tanh(m.a(x))
    return [F.softplus(-m.b(x)).mean() + F.softplus(m.b(made.detach())).mean() + F.softplus(-m.b(made)).mean()]


def _frozen(m: Three, x: Tensor) -> Tensor:
    return m.c(torch.tanh(m.b(torch.tanh(m.a(x))))).square().mean()  # type: ignore[no-any-return]


def _adapted(m: Three, x: Tensor) -> Tensor:
    """As of LoRA: a fixed layer, and a product of two small ones next to it."""
    h = m.a(x) + (x @ m.codes[:4].T) @ m.codes[4:8]
    return m.c(torch.tanh(h)).square().mean()  # type: ignore[no-any-return]


def _of_a_weight(m: Three, x: Tensor) -> Tensor:
    """A weight that has a gradient in one place and none in another."""
    return (F.linear(torch.tanh(m.a(x)), m.b.weight) * F.linear(x, m.b.weight.detach(), m.b.bias)).square().mean()


def _checkpointed(m: Three, x: Tensor) -> Tensor:
    """What is kept is less, and gradients are the same."""
    h = checkpoint(lambda y: torch.tanh(m.b(torch.tanh(m.a(y)))), x, use_reentrant=False)
    return checkpoint(m.c, h, use_reentrant=False).square().mean()  # type: ignore[no-any-return]


class _Reversal(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


class _Sign(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.sign(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def _reversed(m: Three, x: Tensor) -> Tensor:
    h = torch.tanh(m.a(x))
    return m.b(h).square().mean() + m.c(_Reversal.apply(h)).square().mean()  # type: ignore[no-untyped-call, no-any-return]


def _binary(m: Three, x: Tensor) -> Tensor:
    return m.b(_Sign.apply(m.a(x))).square().mean()  # type: ignore[no-untyped-call, no-any-return]


Made = tuple[nn.Module, tuple[Tensor, ...]]


def _of(loss: Callable[[Three, Tensor], Any], *frozen: str) -> Callable[[], Made]:
    return lambda: (Three(loss, *frozen), (torch.randn(BATCH, WIDTH),))


STOPPED: dict[str, Callable[[], Made]] = {
    "detach": _of(_detach), "teacher": _of(_teacher), "own_teacher": _of(_own_teacher),
    "straight_through": _of(_straight_through), "quantised": _of(_quantised), "adversarial": _of(_adversarial),
    "frozen": _of(_frozen, "a"), "adapted": _of(_adapted, "a", "c"), "of_a_weight": _of(_of_a_weight),
    "checkpointed": _of(_checkpointed),
}  # fmt: skip
OWN: dict[str, Callable[[], Made]] = {"reversed": _of(_reversed), "binary": _of(_binary)}
