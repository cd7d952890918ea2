"""Small modules that stop gradients, by their code or their parameters, or run parts again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.graphs.custom_functions import Binary, Doubled, Flat, Product, Reversal, Rounded, Sign, Swish

WIDTH, ROWS = 16, 8
Make = Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]


class Three(nn.Module):
    """Three linear layers, used as a function says."""

    def __init__(self, function: Callable[[Three, Tensor], object], frozen: str = "") -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.function = function
        for name in frozen:
            self.get_submodule(name).requires_grad_(requires_grad=False)

    def forward(self, x: Tensor) -> object:
        return self.function(self, x)


def three(function: Callable[[Three, Tensor], object], frozen: str = "") -> Make:
    def make() -> tuple[nn.Module, tuple[Tensor, ...]]:
        with torch.device("meta"):
            return Three(function, frozen), (torch.zeros(ROWS, WIDTH),)

    return make


def _two_readers(m: Three, x: Tensor) -> Tensor:
    h = torch.tanh(m.a(x))
    return F.mse_loss(m.b(h), m.c(h.detach()))


def _gated(m: Three, x: Tensor) -> Tensor:
    h = m.a(x)
    gated: Tensor = m.c(torch.tanh(m.b(h))) * h.detach()
    return gated


def _teacher(m: Three, x: Tensor) -> Tensor:
    with torch.no_grad():
        target = torch.tanh(m.c(x))
    return F.mse_loss(m.b(torch.tanh(m.a(x))), target)


def _same_twice(m: Three, x: Tensor) -> Tensor:
    """BYOL without a second network: the target comes from the same weights, without a gradient."""
    with torch.inference_mode():
        target = m.b(m.a(x))
    return F.mse_loss(m.c(m.b(m.a(x))), target.clone())


def _gan(m: Three, x: Tensor) -> Tensor:
    fake = m.b(torch.tanh(m.a(x)))
    loss: Tensor = m.c(fake.detach()).mean() - m.c(x).mean()
    return loss


def _straight_through(m: Three, x: Tensor) -> Tensor:
    h = m.a(x)
    loss: Tensor = m.b(h + (torch.round(h * 4) / 4 - h).detach()).square().mean()
    return loss


def _quantised(m: Three, x: Tensor) -> Tensor:
    """VQ-VAE: the nearest row of a codebook, here the rows of `b`."""
    h, book = m.a(x), m.b.weight
    nearest = torch.cdist(h, book).argmin(dim=1)
    chosen = F.embedding(nearest, book)
    loss: Tensor = F.mse_loss(chosen, h.detach()) + 0.25 * F.mse_loss(chosen.detach(), h)
    loss += m.c(h + (chosen - h).detach()).square().mean()
    return loss


def _average(m: Three, x: Tensor) -> Tensor:
    """A mean teacher, whose weights are updated in place before the step."""
    with torch.no_grad():
        m.b.weight.mul_(0.9).add_(m.a.weight, alpha=0.1)
        target = m.b(x)
    return F.mse_loss(m.a(x), target)


def _frozen_once(m: Three, x: Tensor) -> Tensor:
    """A critic's weight is not trained where it judges, and trained where it learns."""
    m.b.requires_grad_(requires_grad=False)
    judged = (m.a(x) @ m.b.weight).mean()
    m.b.requires_grad_()
    loss: Tensor = (m.c(x) @ m.b.weight).square().mean() - judged
    return loss


def _accuracy(m: Three, x: Tensor) -> tuple[Tensor, Tensor]:
    logits = m.a(x)
    return logits, logits.detach().argmax(dim=1)


def _probe(m: Three, x: Tensor) -> dict[str, Tensor]:
    h = m.a(x)
    return {"loss": m.b(h).square().mean(), "logits": m.c(h)}


def _block(m: Three, x: Tensor) -> Tensor:
    """Three products; autograd saves nothing behind the second."""
    h: Tensor = x + m.c(torch.relu(m.b(torch.tanh(m.a(x)))))
    return h


def _checkpointed(part: Callable[[Three, Tensor], Tensor], times: int = 2, **how: object) -> Make:
    """A part of the model is a checkpoint, several times, after the input has been given a gradient by a weight."""

    def forward(m: Three, x: Tensor) -> Tensor:
        h: Tensor = m.a(x)
        for _ in range(times):
            h = checkpoint(lambda given: part(m, given), h, **how)  # type: ignore[arg-type]
        return h.square()

    return three(forward)


def _checkpointed_teacher(m: Three, x: Tensor) -> Tensor:
    with torch.no_grad():
        target = checkpoint(lambda y: m.b(torch.tanh(m.a(y))), x, use_reentrant=False)
    return F.mse_loss(m.c(x), target)


CHECKPOINTS: dict[str, Make] = {
    "not reentrant": _checkpointed(_block, use_reentrant=False),
    "reentrant": _checkpointed(_block, use_reentrant=True),
    "not stopped early": _checkpointed(_block, use_reentrant=False, early_stop=False),
    "of inputs": three(lambda m, x: checkpoint(lambda y: _block(m, y), x, use_reentrant=False)),
    "reentrant, of inputs": three(lambda m, x: m.a(checkpoint(lambda y: _block(m, y), x, use_reentrant=True))),
    "that ends in a product with an input": three(
        lambda m, x: checkpoint(lambda h: h + m.b(torch.tanh(h)) * x, m.a(x), use_reentrant=False).square()
    ),
    "of what is not trained": three(
        lambda m, x: m.c(checkpoint(lambda y: m.b(torch.tanh(m.a(y))), x, use_reentrant=False)), frozen="ab"
    ),
    "without gradients": three(_checkpointed_teacher),
    "that ends in dropout": _checkpointed(lambda m, x: x + F.dropout(m.b(torch.tanh(x)), 0.1), use_reentrant=False),
    "that ends in a choice": _checkpointed(
        lambda m, x: x + m.b(torch.tanh(x)).max(1, keepdim=True).values, use_reentrant=False
    ),
    "in a row": three(
        lambda m, x: checkpoint_sequential(  # type: ignore[no-untyped-call]
            nn.Sequential(m.a, nn.Tanh(), m.b, m.c), 2, x, use_reentrant=False
        )
    ),
    "with a gradient that stops": three(
        lambda m, x: checkpoint(lambda y: _two_readers(m, y), m.a(x), use_reentrant=False)
    ),
}


reversal: Callable[..., Tensor] = Reversal.apply  # bound to names, as is usual
binary: Callable[..., Tensor] = Binary.apply
product: Callable[..., Tensor] = Product.apply


def _swish(m: Three, x: Tensor) -> Tensor:
    gated, gate = Swish.apply(m.a(x), m.b(x))  # type: ignore[no-untyped-call]
    return m.c(torch.tanh(gated)) * gate  # type: ignore[no-any-return]


OWN: dict[str, Make] = {
    "reversal": three(lambda m, x: m.b(x).sum() + m.c(reversal(m.a(x))).sum()),
    "straight-through": three(lambda m, x: m.c(binary(m.a(x), m.b(x).abs()))),
    "a product": three(lambda m, x: m.c(product(m.a(x), m.b.weight))),
    "one operation": three(lambda m, x: m.c(Sign.apply(m.a(x)) * m.b(x))),  # type: ignore[no-untyped-call]
    "several operations": three(lambda m, x: m.c(Rounded.apply(m.a(x), 8))),  # type: ignore[no-untyped-call]
    "several results": three(_swish),
    "the input": three(lambda m, x: m.c(Doubled.apply(m.a(x)))),  # type: ignore[no-untyped-call]
    "a view": three(lambda m, x: m.c(Flat.apply(torch.tanh(m.a(x))).view(ROWS, WIDTH))),  # type: ignore[no-untyped-call]
}

ASKED: dict[str, Make] = {
    "an input": three(lambda m, x: m.b(torch.tanh(m.a(x.requires_grad_())))),
    "an input, twice": three(lambda m, x: m.b(x.requires_grad_() * 2) * x),
    "an input alone": three(lambda m, x: m.b(torch.tanh(m.a(x.requires_grad_())) * x), frozen="abc"),
    "a part of an input": three(lambda m, x: m.b(torch.relu(x.requires_grad_()[:2]) @ m.a.weight)),
    "an input of a reentrant checkpoint": three(
        lambda m, x: m.a(checkpoint(lambda y: _block(m, y), x.requires_grad_(), use_reentrant=True))
    ),
}
"""Modules that ask for the gradient of what is no weight, and read it."""

STOPS: dict[str, Make] = {
    "detach, with another reader": three(_two_readers),
    "detach, in a product": three(_gated),
    "data": three(lambda m, x: m.b(m.a(x).data)),
    "weight.detach": three(lambda m, x: F.linear(m.a(x), m.a.weight.detach())),
    "no_grad": three(_teacher),
    "inference_mode": three(_same_twice),
    "gan": three(_gan),
    "straight-through": three(_straight_through),
    "vq-vae": three(_quantised),
    "mean teacher": three(_average, frozen="b"),
    "first frozen": three(lambda m, x: m.c(m.b(m.a(x))), frozen="a"),
    "first two frozen": three(lambda m, x: m.c(m.b(m.a(x))), frozen="ab"),
    "last frozen": three(lambda m, x: m.c(m.b(m.a(x))), frozen="c"),
    "frozen in the middle": three(lambda m, x: m.c(torch.relu(m.b(torch.relu(m.a(x))))), frozen="b"),
    "frozen for one use": three(_frozen_once),
    "detach_": three(lambda m, x: m.b(m.a(x).detach_() * 2)),
    "an output without a gradient": three(_accuracy),
    "a loss by name": three(_probe),
    "a gradient of what is not trained": three(lambda m, x: m.c(torch.tanh(m.a(x).requires_grad_())), frozen="a"),
    "a gradient of what is detached": three(lambda m, x: m.c(m.b(x) + torch.tanh(m.a(x).detach().requires_grad_()))),
    "a gradient of a weight that is detached": three(
        lambda m, x: m.c(torch.tanh(m.b(x)) * m.a.weight.detach().requires_grad_()[0])
    ),
    "a gradient of data": three(
        lambda m, x: (lambda h: m.b(h) + m.c(h.data.view(-1).requires_grad_().view_as(h) * 2 + m.b(h)))(m.a(x))
    ),
    "only one part": three(lambda m, x: (m.a(x).detach(), m.b(x))),
    "adapter": three(lambda m, x: m.a(m.a(x) + m.c(torch.relu(m.b(x)))), frozen="a"),
}
