"""Small modules that do what is hard to trace, by what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint

X = torch.zeros(2, 4)
WORDS = torch.zeros(2, 5, 4)
IMAGE = torch.zeros(2, 4, 8, 8)
LABELS = torch.zeros(2, dtype=torch.long)


class Small(nn.Module):
    """A function of a linear layer, of another part, if there is one, and of inputs."""

    def __init__(self, function: Callable[..., Any], part: nn.Module | None = None) -> None:
        super().__init__()
        self.linear: nn.Linear = nn.Linear(4, 4)
        self.function = function
        if part is not None:
            self.part = part
        self.count: Tensor
        self.last: Tensor
        self.register_buffer("count", torch.zeros(()))

    def forward(self, *args: Tensor) -> Any:
        return self.function(self, *args)


Example = tuple[nn.Module, tuple[Tensor, ...]]
Make = Callable[[], Example]


def of(function: Callable[..., Any], *inputs: Tensor, part: Callable[[], nn.Module] | None = None) -> Make:
    """Makes a module and its example inputs."""
    return lambda: (Small(function, part() if part else None), inputs or (X,))


def part_of(part: Callable[[], nn.Module], *inputs: Tensor) -> Make:
    """A part after the linear layer."""
    return of(lambda m, x: m.part(m.linear(x)), *inputs, part=part)


def _inplace(m: Small, x: Tensor) -> Tensor:
    y: Tensor = m.linear(x)
    y += 1
    F.relu(y.mul_(2), inplace=True)
    return y.unsqueeze_(0)


def _inplace_on_a_view(m: Small, x: Tensor) -> Tensor:
    y: Tensor = m.linear(x).view(-1)
    y.relu_()
    return y * 2


def _written(m: Small, x: Tensor) -> Tensor:
    given = torch.empty_like(x)
    torch.add(m.linear(x).detach(), 1, out=given)
    product: Tensor = given * m.linear(x)
    return product


def _two_written(m: Small, x: Tensor) -> Tensor:
    given, places = torch.empty(2), torch.empty(2, dtype=torch.long)
    torch.max(m.linear(x).detach(), 1, out=(given, places))
    product: Tensor = given * m.linear.bias[:2] + places
    return product


def _fills(m: Small, x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    y.zero_()
    z = torch.zeros_like(x)
    z.copy_(m.linear(x))
    return y + z.masked_fill_(x > 0, 0.0)


def _counts(m: Small, x: Tensor) -> Tensor:
    m.count.add_(1)
    y: Tensor = m.linear(x) * m.count
    return y


def _assigns(m: Small, x: Tensor) -> Tensor:
    m.count = m.linear(x).sum() + m.count
    m.last = m.count * 2
    return m.last


def _index_put(m: Small, x: Tensor) -> Tensor:
    y = m.linear(x).clone()
    y[torch.tensor([0, 1])] = 0.0
    return torch.index_put(y, (torch.tensor([0, 1]),), torch.ones(2, 4))


def _noise(m: Small, x: Tensor) -> list[Tensor]:
    y = m.linear(x)
    drawn = [torch.empty_like(x).bernoulli_(0.5), torch.empty_like(x).normal_(), torch.empty_like(x).uniform_()]
    return [y + torch.randn(2, 4), y * (torch.rand_like(x) < 0.5), F.gumbel_softmax(y), *(y * each for each in drawn)]


def _functions(m: Small, x: Tensor) -> list[Tensor]:
    functions = F.gelu, F.silu, F.mish, F.elu, F.softplus, F.hardswish, F.leaky_relu, F.relu6, F.glu, F.logsigmoid
    return [function(m.linear(x)) for function in functions]


def _inplace_functions(m: Small, x: Tensor) -> Tensor:
    y: Tensor = m.linear(x)
    for function in (F.silu, F.elu, F.hardswish, F.leaky_relu, F.relu6, F.hardtanh, F.mish):
        y = function(y, inplace=True)
    return y


def _losses(m: Small, x: Tensor, labels: Tensor) -> list[Tensor]:
    y = m.linear(x)
    smooth = F.cross_entropy(y, labels, label_smoothing=0.1)
    return [F.cross_entropy(y, labels), smooth, F.mse_loss(y, x), F.binary_cross_entropy_with_logits(y, x)]


def _parts(m: Small, x: Tensor) -> list[Any]:
    y = m.linear(x)
    left, right = y.chunk(2, dim=1)
    return [left * right, sum(y.unbind(0)), [row * 2 for row in y], y[:, None, [0, 1]], y.topk(2), y.sort(-1), y.max(0)]


def _products(m: Small, x: Tensor) -> list[Tensor]:
    y, w = m.linear(x), m.linear.weight
    return [y @ w, w @ y.mT, y @ y.mT, y @ m.linear.bias, torch.einsum("bij,bkj->bik", y, x)]


def _spectrum(m: Small, x: Tensor) -> list[Tensor]:
    y = m.linear(x)
    return [torch.view_as_real(torch.fft.fft(y) * torch.polar(x, x)), torch.fft.irfft(torch.fft.rfft(y))]


def _resized(m: Small, x: Tensor) -> list[Tensor]:
    modes = "nearest", "bilinear", "bicubic", "area"
    y = m.linear(x)
    return [F.adaptive_avg_pool2d(F.max_pool2d(F.pad(y, (1, 1, 1, 1)), 2), 1)] + [
        F.interpolate(y, scale_factor=2, mode=mode) for mode in modes
    ]


def _without_gradient(m: Small, x: Tensor) -> Tensor:
    with torch.no_grad():
        y: Tensor = m.linear(x)
    return y * m.linear.weight.detach()[:2]


def _dead(m: Small, x: Tensor) -> Tensor:
    m.linear(x).exp()
    y: Tensor = m.linear(x)
    return y


def _constants(m: Small, x: Tensor) -> Tensor:
    scale = torch.tensor(2.0)
    y: Tensor = m.linear(x) * scale + torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.arange(4) * torch.tensor(3.0).item()
    return y


class _Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(y := x.exp())
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        made: Tensor = gradient * y
        return made


class _Pair(NamedTuple):
    first: Tensor
    second: Tensor


def tied() -> Example:
    """Two layers with one weight."""
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    module[1].weight = module[0].weight
    return module, (X,)


def hooked() -> Example:
    """Hooks that compute."""
    module = nn.Sequential(nn.Linear(4, 4))
    module[0].register_forward_pre_hook(lambda part, given: (given[0] + 1,))
    module[0].register_forward_hook(lambda part, given, out: out * 2)
    return module, (X,)


# Recorded, and equal to what the exporter finds.
RECORDED: dict[str, Make] = {
    "inplace": of(_inplace),
    "inplace on a view": of(_inplace_on_a_view),
    "inplace on an input": of(lambda m, x: m.linear(x.add_(1))),
    "fills": of(_fills),
    "counts": of(_counts),
    "assigns": of(_assigns),
    "index put": of(_index_put),
    "noise": of(_noise),
    "functions": of(_functions),
    "inplace functions": of(_inplace_functions),
    "losses": of(_losses, X, LABELS),
    "parts": of(_parts),
    "products": of(_products, WORDS),
    "spectrum": of(_spectrum),
    "resized": of(_resized, torch.zeros(2, 4, 8, 4)),
    "dead": of(_dead),
    "constants": of(_constants),
    "custom gradient": of(lambda m, x: _Exp.apply(m.linear(x))),  # type: ignore[no-untyped-call]
    "checkpoint": of(lambda m, x: checkpoint(m.linear, x, use_reentrant=False) * 2),
    "vmap": of(lambda m, x: torch.vmap(lambda row: m.linear(row).sin())(x)),
    "outputs": of(lambda m, x: {"a": m.linear(x), "b": [x, None, 3], "c": _Pair(x, m.linear.weight)}),
    "same module twice": of(lambda m, x: m.linear(m.linear(x))),
    "bag": of(lambda m, i, o: F.embedding_bag(i, m.linear.weight, o), LABELS, LABELS),
    "sparse": of(lambda m, i: F.embedding(i, m.linear.weight, sparse=True), LABELS),
    "attention": of(lambda m, x: F.scaled_dot_product_attention(m.linear(x), x, x).mT.reshape(2, 20), WORDS),
    "batch norm": part_of(lambda: nn.BatchNorm1d(4)),
    "batch norm, evaluated": part_of(lambda: nn.BatchNorm1d(4).eval()),
    "group norm": part_of(lambda: nn.GroupNorm(2, 4)),
    "RMS norm": part_of(lambda: nn.RMSNorm(4)),
    "dropout": part_of(nn.Dropout),
    "dropout in place": part_of(lambda: nn.Dropout(inplace=True)),
    "dropout of channels": part_of(nn.Dropout2d, IMAGE[..., :4]),
    "LSTM": of(
        lambda m, x: m.part(m.linear(x))[0], WORDS, part=lambda: nn.LSTM(4, 3, 2, dropout=0.5, bidirectional=True)
    ),
    "GRU": of(lambda m, x: m.part(m.linear(x))[0], WORDS, part=lambda: nn.GRU(4, 3)),
    "LSTM cell": part_of(lambda: nn.LSTMCell(4, 3)),
    "multi-head attention": of(
        lambda m, x: m.part(x, x, m.linear(x)), WORDS, part=lambda: nn.MultiheadAttention(4, 2, dropout=0.1)
    ),
    "multi-head attention, fused": of(
        lambda m, x: m.part(x, x, m.linear(x), need_weights=False), WORDS, part=lambda: nn.MultiheadAttention(4, 2)
    ),
    "encoder, evaluated": part_of(
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2).eval(), WORDS
    ),
    "weight norm": lambda: (parametrizations.weight_norm(nn.Linear(4, 4)), (X,)),
    "spectral norm": lambda: (parametrizations.spectral_norm(nn.Linear(4, 4)), (X,)),
    "written into what is given": of(_written),
    "two written into what is given": of(_two_written),
    "orthogonal": lambda: (parametrizations.orthogonal(nn.Linear(4, 4)), (X,)),
    "pruned": lambda: (prune.l1_unstructured(nn.Linear(4, 4), "weight", 2), (X,)),  # type: ignore[no-untyped-call]
    "tied": tied,
    "hooked": hooked,
}  # fmt: skip


def _row_changed(m: Small, x: Tensor) -> Tensor:
    y: Tensor = m.linear(x)
    y[:, 0] = 1
    return y


def _view_of_changed(m: Small, x: Tensor) -> Tensor:
    y: Tensor = m.linear(x)
    view = y.view(-1)
    y.add_(1)
    return view


# Exported, because they cannot be recorded.
EXPORTED: dict[str, Make] = {
    "a row is changed": of(_row_changed),
    "a view is read after a change": of(_view_of_changed),
    "a number of a tensor": of(lambda m, x: m.linear(x) * m.linear(x).detach().sum().item()),
    "largest norm": of(
        lambda m, i: m.linear(m.part(i)), LABELS, part=lambda: nn.Embedding(5, 4, max_norm=1.0)
    ),
}  # fmt: skip


def _shared() -> Example:
    module = nn.Sequential(nn.Linear(4, 4))
    module.append(module[0])
    return module, (X,)


def _cast(m: Small, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return m.linear(x).float()  # type: ignore[no-any-return]


# Recorded, and equal but for the modules in the names of ops, which the exporter forgets, or takes for another one.
OTHER_NAMES: dict[str, tuple[Make, tuple[str, ...]]] = {
    "no gradient": (of(_without_gradient), ("linear/addmm", "mul")),
    "autocast": (
        of(_cast), ("linear/_to_copy", "linear/_to_copy_1", "linear/_to_copy_2", "linear/addmm", "_to_copy_3")
    ),
    "reentrant": (
        of(lambda m, x: checkpoint(m.linear, x, use_reentrant=True) * 2), ("linear/addmm", "mul")
    ),
    "shared": (_shared, ("0/addmm", "0/addmm_1")),
}  # fmt: skip
