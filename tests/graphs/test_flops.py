"""The FLOPs of a training step are those that PyTorch's own counter counts in one, forward and backward."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.foundation import by_name
from graphs.op_graph import OpGraph

ROWS, WIDTH, RANK = 24, 16, 4


class Layer(nn.Module):
    """A function of an input, a matrix, a bias and others that are made from them; another one comes before it."""

    def __init__(self, function: Callable[..., Any], *, bias: bool = True) -> None:
        super().__init__()
        self.before, self.function = nn.Linear(WIDTH, WIDTH), function
        self.w = nn.Parameter(torch.zeros(WIDTH, WIDTH))
        self.b = nn.Parameter(torch.zeros(WIDTH)) if bias else None
        self.low, self.high = nn.Parameter(torch.zeros(WIDTH, RANK)), nn.Parameter(torch.zeros(RANK, WIDTH))
        self.fixed: Tensor
        self.register_buffer("fixed", torch.zeros(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Any:
        return self.function(self, self.before(x))


def images(*layers: nn.Module) -> tuple[nn.Module, Tensor]:
    return nn.Sequential(*layers), torch.zeros(2, WIDTH, 8, 8)


def rows(function: Callable[..., Any]) -> tuple[nn.Module, Tensor]:
    return Layer(function), torch.zeros(ROWS, WIDTH)


def heads(x: Tensor) -> Tensor:
    return x.view(2, ROWS // 2, 4, WIDTH // 4).transpose(1, 2)


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "linear": lambda: rows(lambda m, h: F.linear(h, m.w, m.b)),
    "a fixed matrix": lambda: rows(lambda m, h: F.linear(h, m.fixed)),
    "a fixed matrix and a bias": lambda: rows(lambda m, h: F.linear(h, m.fixed, m.b)),
    "a merged adapter": lambda: rows(lambda m, h: F.linear(h, m.w + m.low @ m.high, m.b)),
    "a frozen matrix with a merged adapter": lambda: rows(lambda m, h: F.linear(h, m.fixed + m.low @ m.high, m.b)),
    "an adapter": lambda: rows(lambda m, h: F.linear(h, m.fixed, m.b) + h @ m.low @ m.high),
    "a masked matrix": lambda: rows(lambda m, h: F.linear(h, m.w * m.fixed, m.b)),
    "a scaled matrix": lambda: rows(lambda m, h: F.linear(h, m.fixed * m.b[:, None], m.b)),
    "weight norm": lambda: (
        nn.Sequential(*[weight_norm(nn.Linear(WIDTH, WIDTH)) for _ in range(3)]),
        torch.zeros(ROWS, WIDTH),
    ),
    "spectral norm": lambda: (
        nn.Sequential(nn.Linear(WIDTH, 8), spectral_norm(nn.Linear(8, WIDTH))),
        torch.zeros(ROWS, WIDTH),
    ),
    "weight norm of convolutions": lambda: images(*[weight_norm(nn.Conv2d(WIDTH, WIDTH, 3)) for _ in range(2)]),
    "convolutions": lambda: images(nn.Conv2d(WIDTH, 8, 3, 2, 1), nn.Conv2d(8, WIDTH, 1), nn.Conv2d(WIDTH, 8, 3)),
    "transposed convolutions": lambda: images(
        nn.Conv2d(WIDTH, 8, 3, 2, 1), nn.ConvTranspose2d(8, WIDTH, 4, 2, 1), nn.ConvTranspose2d(WIDTH, 8, 4, 2, 1)
    ),
    "a convolution with a fixed matrix and a bias": lambda: (
        Layer(lambda m, h: F.conv1d(h[:, :, None], m.fixed[:, :, None], m.b)),
        torch.zeros(ROWS, WIDTH),
    ),
    "h @ h.T": lambda: rows(lambda m, h: h @ h.t()),
    "h @ h.T of a part": lambda: rows(lambda m, h: h[:, :8] @ h[:, 8:].t()),
    "h @ h.T, detached": lambda: rows(lambda m, h: h @ h.detach().t()),
    "h @ A @ h.T": lambda: rows(lambda m, h: h @ m.fixed @ h.t()),
    "a matrix squared": lambda: rows(lambda m, h: h @ (m.w @ m.w)),
    "a matrix and its transpose": lambda: rows(lambda m, h: h @ (m.w @ m.w.t())),
    "two matrices": lambda: rows(lambda m, h: h @ (m.low @ m.high)),
    "a matrix twice": lambda: rows(lambda m, h: h @ m.w @ m.w),
    "h squared": lambda: rows(lambda m, h: (h * h) @ m.w),
    "bmm": lambda: rows(lambda m, h: torch.bmm(heads(h)[0], heads(h)[1].transpose(1, 2))),
    "baddbmm": lambda: rows(lambda m, h: torch.baddbmm(m.w[None], m.fixed[None], h[:WIDTH][None])),
    "baddbmm, added to h": lambda: rows(lambda m, h: torch.baddbmm(h[None], h[None], m.w[None])),
    "addmm, added to h": lambda: rows(lambda m, h: torch.addmm(h, h, m.fixed)),
    "einsum": lambda: rows(lambda m, h: torch.einsum("bhtd,bhsd->bhts", heads(h), heads(h))),
    "einsum with a weight": lambda: rows(lambda m, h: torch.einsum("bi,ij,bj->b", h, m.w, h)),
    "bilinear": lambda: rows(lambda m, h: F.bilinear(h, h, m.w[:, None].expand(-1, WIDTH, -1), m.b)),
    "attention by hand": lambda: rows(
        lambda m, h: (heads(h) @ heads(h @ m.w).transpose(-1, -2)).softmax(-1) @ heads(h @ m.w)
    ),
    "a fixed graph": lambda: rows(lambda m, h: m.fixed @ F.relu(m.fixed @ h[:WIDTH] @ m.w)),
    "a gru": lambda: (nn.GRU(WIDTH, WIDTH), torch.zeros(5, 4, WIDTH)),
    "a gru after a layer": lambda: (
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GRU(WIDTH, WIDTH)),
        torch.zeros(5, 4, WIDTH),
    ),
}


def counted(module: nn.Module, *args: Any, **kwargs: Any) -> int:
    """What PyTorch counts in a step whose loss is the sum of all outputs."""
    with FlopCounterMode(display=False) as counter:
        outputs = [each for each in tree_leaves(module(*args, **kwargs)) if isinstance(each, Tensor)]
        torch.stack([each.sum() for each in outputs if each.requires_grad]).sum().backward()  # type: ignore[no-untyped-call]
    total: int = counter.get_total_flops()
    return total


def step_of(module: nn.Module, *args: Any, **kwargs: Any) -> OpGraph:
    return training_step(capture(module, args, kwargs, name="test"))


@pytest.mark.parametrize("name", MODELS)
def test_of_a_layer(name: str) -> None:
    with torch.device("meta"):
        module, x = MODELS[name]()
    assert step_of(module, x).flops.sum() == counted(module, x)


def test_the_counter_counts_a_weight_of_a_grouped_convolution_for_every_group() -> None:
    """By hand: three products, each of one group's channels with one group's kernels; PyTorch counts four."""
    groups, size = 4, 6 * 6
    with torch.device("meta"):
        module, x = images(nn.Conv2d(WIDTH, WIDTH, 1), nn.Conv2d(WIDTH, WIDTH, 3, groups=groups))
    first, second = 2 * 2 * 64 * WIDTH * WIDTH, 2 * 2 * size * WIDTH * (WIDTH // groups) * 9
    assert step_of(module, x).flops.sum() == 2 * first + 3 * second
    assert counted(module, x) == 2 * first + 2 * second + groups * second


def test_the_counter_knows_of_a_sum_of_products_the_backward_pass_alone() -> None:
    def added(m: Layer, h: Tensor) -> Tensor:
        groups = h.view(4, ROWS // 4, WIDTH)
        return torch.addbmm(m.w, groups.transpose(1, 2), groups)

    with torch.device("meta"):
        module, x = rows(added)
    linear, product = 2 * ROWS * WIDTH * WIDTH, 2 * 4 * WIDTH * (ROWS // 4) * WIDTH
    assert step_of(module, x).flops.sum() == 2 * linear + 3 * product
    assert counted(module, x) == 2 * linear + 2 * product


# Neither with groups of convolutions (cifar10, nasnet), nor with results that no output reads (wavenet, xlnet).
QUICK = ("bert", "layered", "llama", "transformer_xl", "vgg", "vit")
SLOW = ("amoebanet", "gnmt", "inception", "inception_v3", "nmt", "ptb", "resnet", "rnnlm", "transformer")


@pytest.mark.parametrize("family", [*QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)])
def test_of_a_family(family: str) -> None:
    with torch.device("meta"):
        module, args = by_name.build("graphs.families", family)
    assert step_of(module, *args).flops.sum() == counted(module, *args)
