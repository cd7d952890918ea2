"""Training steps as people write them: each a module whose forward pass ends in the loss, and its inputs.

All are small and have numbers, so that a real step can be run next to the captured one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.graphs.zoo_networks import (
    DLRM,
    GCN,
    ROWS,
    Block,
    Conformer,
    Decoder,
    Made,
    Mixture,
    MobileNet,
    Packed,
    Step,
    UNet,
    classes,
    convolutions,
    frozen,
    mlp,
)
from tests.graphs.zoo_transformers import bert_last_layer, frozen_vit, hugging_face_checkpoints, lora_llama

WIDTH = 32


def rows(width: int = WIDTH) -> Tensor:
    return torch.randn(ROWS, width)


# ---- parts that are not trained


def ema_teacher() -> Made:
    def loss(m: Any, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            for kept, new in zip(m.teacher.parameters(), m.student.parameters(), strict=True):
                kept.mul_(0.99).add_(new, alpha=0.01)
            target = m.teacher(x).softmax(-1)
        out = m.student(x + 0.1 * torch.randn_like(x))
        return F.cross_entropy(out, y) + F.mse_loss(out.softmax(-1), target)

    return Step(loss, student=mlp(WIDTH, 64, 10), teacher=frozen(mlp(WIDTH, 64, 10))), (rows(), classes())


def byol() -> Made:
    def loss(m: Any, one: Tensor, two: Tensor) -> Tensor:
        total: Any = 0.0
        for seen, other in ((one, two), (two, one)):
            with torch.no_grad():
                target = F.normalize(m.target(other), dim=-1)
            total = total + 2 - 2 * (F.normalize(m.predictor(m.online(seen)), dim=-1) * target).sum(-1).mean()
        return total  # type: ignore[no-any-return]

    def encoder() -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, WIDTH))

    return Step(loss, online=encoder(), predictor=mlp(WIDTH, 64, WIDTH), target=encoder()), (rows(), rows())


class Dino(nn.Module):
    """Crops of a student against a teacher, whose mean output is a buffer that each step moves."""

    center: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = mlp(WIDTH, 64, 48), frozen(mlp(WIDTH, 64, 48))
        self.register_buffer("center", torch.zeros(1, 48))

    def forward(self, large: Tensor, small: Tensor) -> Tensor:
        scores = self.student(torch.cat([large, small])).div(0.1).chunk(4)
        with torch.no_grad():
            given = self.teacher(large)
            targets = ((given - self.center) / 0.04).softmax(-1).chunk(2)
            self.center.mul_(0.9).add_(given.mean(0, keepdim=True), alpha=0.1)
        pairs = [(t, s) for i, t in enumerate(targets) for j, s in enumerate(scores) if i != j]
        return torch.stack([-(t * s.log_softmax(-1)).sum(-1).mean() for t, s in pairs]).mean()


def distillation() -> Made:
    def loss(m: Any, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            taught = F.softmax(m.teacher(x) / 4, dim=-1)
        out = m.student(x)
        return F.cross_entropy(out, y) + 16 * F.kl_div(F.log_softmax(out / 4, -1), taught, reduction="batchmean")

    return Step(loss, teacher=mlp(WIDTH, 128, 10).eval(), student=mlp(WIDTH, 32, 10)), (rows(), classes())


def generator_step() -> Made:
    parts = {"generator": mlp(16, 64, WIDTH), "critic": frozen(mlp(WIDTH, 64, 1))}
    return Step(lambda m, z: F.softplus(-m.critic(m.generator(z))).mean(), **parts), (rows(16),)


def discriminator_step() -> Made:
    def loss(m: Any, real: Tensor, z: Tensor) -> Tensor:
        ones, made = m.critic(real), m.critic(m.generator(z).detach())
        judged = F.binary_cross_entropy_with_logits
        return judged(ones, torch.ones_like(ones)) + judged(made, torch.zeros_like(made))

    return Step(loss, generator=mlp(16, 64, WIDTH), critic=mlp(WIDTH, 64, 1)), (rows(), rows(16))


def gradient_penalty() -> Made:
    """WGAN-GP: a gradient of a gradient."""

    def loss(m: Any, real: Tensor, z: Tensor) -> Tensor:
        made = m.generator(z).detach()
        mixed = torch.lerp(real, made, torch.rand(len(real), 1)).requires_grad_()
        (slope,) = torch.autograd.grad(m.critic(mixed).sum(), mixed, create_graph=True)
        lost: Tensor = m.critic(made).mean() - m.critic(real).mean() + 10 * (slope.norm(2, dim=1) - 1).square().mean()
        return lost

    return Step(loss, generator=mlp(16, 64, WIDTH), critic=mlp(WIDTH, 64, 1)), (rows(), rows(16))


def actor_critic() -> Made:
    def loss(m: Any, x: Tensor, action: Tensor, returns: Tensor) -> Tensor:
        h = torch.tanh(m.trunk(x))
        value, policy = m.value(h).squeeze(-1), torch.distributions.Categorical(logits=m.actor(h))
        gain = (returns - value.detach()) * policy.log_prob(action)  # type: ignore[no-untyped-call]
        spread: Tensor = policy.entropy()  # type: ignore[no-untyped-call]
        lost: Tensor = 0.5 * F.mse_loss(value, returns) - gain.mean() - 0.01 * spread.mean()
        return lost

    parts = {"trunk": nn.Linear(WIDTH, 64), "actor": nn.Linear(64, 6), "value": nn.Linear(64, 1)}
    return Step(loss, **parts), (rows(), classes(6), torch.randn(ROWS))


# ---- gradients that are another function's


def vq_vae() -> Made:
    def loss(m: Any, x: Tensor) -> Tensor:
        h = m.encoder(x)
        nearest = torch.cdist(h, m.book.weight).argmin(-1)
        code = m.book(nearest)
        lost = F.mse_loss(code, h.detach()) + 0.25 * F.mse_loss(h, code.detach())
        return F.mse_loss(m.decoder(h + (code - h).detach()), x) + lost

    parts = {"encoder": mlp(WIDTH, 64, 16), "book": nn.Embedding(32, 16), "decoder": mlp(16, 64, WIDTH)}
    return Step(loss, **parts), (rows(),)


class Quantised(nn.Linear):
    """Trained for eight bits: rounding passes its gradient on."""

    def forward(self, input: Tensor) -> Tensor:
        scale = self.weight.detach().abs().amax(dim=1, keepdim=True) / 127
        rounded = (self.weight / scale).round().clamp(-127, 127) * scale
        return F.linear(input, self.weight + (rounded - self.weight).detach(), self.bias)


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, by: float) -> Tensor:
        ctx.by = by
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.by * gradients[0], None


def gradient_reversal() -> Made:
    def loss(m: Any, x: Tensor, y: Tensor, domain: Tensor) -> Tensor:
        h = m.features(x)
        return F.cross_entropy(m.classes(h), y) + F.cross_entropy(m.domain(_Reversed.apply(h, 0.3)), domain)  # type: ignore[no-untyped-call]

    parts = {"features": mlp(WIDTH, 64, 64), "classes": mlp(64, 32, 10), "domain": mlp(64, 32, 2)}
    return Step(loss, **parts), (rows(), classes(), classes(2))


def gumbel() -> Made:
    def loss(m: Any, x: Tensor) -> Tensor:
        code = F.gumbel_softmax(m.encoder(x), tau=0.7, hard=True)
        return F.mse_loss(m.decoder(code @ m.codes.weight), x)

    parts = {"encoder": mlp(WIDTH, 64, 48), "codes": nn.Embedding(48, 16), "decoder": mlp(16, 64, WIDTH)}
    return Step(loss, **parts), (rows(),)


# ---- parts that are run again


def checkpointed(*, use_reentrant: bool) -> Made:
    from torch.utils.checkpoint import checkpoint

    def loss(m: Any, x: Tensor, y: Tensor) -> Tensor:
        x = m.entry(x)
        for block in m.blocks:
            x = checkpoint(block, x, use_reentrant=use_reentrant)
        return F.cross_entropy(m.head(x.mean(1)), y)

    blocks = nn.ModuleList(Block(WIDTH) for _ in range(3))
    parts = {"entry": nn.Linear(16, WIDTH), "blocks": blocks, "head": nn.Linear(WIDTH, 10)}
    return Step(loss, **parts), (torch.randn(8, 32, 16), classes(10, 8))


# ---- others


class LowRank(nn.Linear):
    """DoRA: the direction of a frozen weight and a trained product of low rank, and a trained length."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width, bias=False)
        self.weight.requires_grad = False
        self.down, self.up = nn.Linear(width, 4, bias=False), nn.Linear(4, width, bias=False)
        self.length = nn.Parameter(torch.ones(width, 1))

    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight + self.up.weight @ self.down.weight
        return F.linear(input, self.length * weight / weight.norm(dim=1, keepdim=True).detach())


def sines() -> Made:
    """SIREN, which fits values at points."""

    def loss(m: Any, x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(m.last(torch.sin(30 * m.second(torch.sin(30 * m.first(x))))), y)

    layers = {"first": nn.Linear(2, 64), "second": nn.Linear(64, 64), "last": nn.Linear(64, 3)}
    return Step(loss, **layers), (rows(2), rows(3))


def mixed_precision() -> Made:
    def loss(m: Any, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cuda" if x.is_cuda else "cpu", dtype=torch.bfloat16):
            out = m.net(x)
        return F.cross_entropy(out.float(), y)

    return Step(loss, net=nn.Sequential(mlp(WIDTH, 128, 64), nn.LayerNorm(64), nn.Linear(64, 10))), (rows(), classes())


def contrastive() -> Made:
    def loss(m: Any, one: Tensor, two: Tensor) -> Tensor:
        h = F.normalize(m.net(torch.cat([one, two])), dim=-1)
        alike = (h @ h.T / 0.1).masked_fill(torch.eye(len(h), dtype=torch.bool, device=h.device), -math.inf)
        return F.cross_entropy(alike, torch.arange(len(h), device=h.device).roll(len(one)))

    return Step(loss, net=mlp(WIDTH, 64, 16)), (rows()[:64], rows()[:64])


class Int8(nn.Module):
    """A product with a weight of one byte a number, and a trained scale."""

    weight: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 127, (width, width), dtype=torch.int8))
        self.scale, self.bias = nn.Parameter(torch.full((width,), 0.01)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype)) * self.scale + self.bias


def int8_buffers() -> Made:
    net = nn.Sequential(Int8(64), nn.ReLU(), Int8(64), nn.ReLU(), nn.Linear(64, 10))
    return Step(lambda m, x, y: F.cross_entropy(m.net(x), y), net=net), (rows(64), classes())


def classifier(net: nn.Module, *inputs: Any, labels: Tensor) -> Made:
    """Cross-entropy of what a network returns, the last inputs being the labels."""
    return Step(lambda m, *given: F.cross_entropy(m.net(*given[:-1]), given[-1]), net=net), (*inputs, labels)


def recurrent(*, batch_first: bool) -> Made:
    layers = {
        "rnn": nn.LSTM(WIDTH, 64, 2, batch_first=True) if batch_first else nn.RNN(WIDTH, 64),
        "head": nn.Linear(64, 10),
    }
    x = torch.randn(16, 20, WIDTH) if batch_first else torch.randn(20, 16, WIDTH)
    last = (slice(None), -1) if batch_first else (-1,)
    return Step(lambda m, x, y: F.cross_entropy(m.head(m.rnn(x)[0][last]), y), **layers), (x, classes(10, 16))


def graph_network() -> Made:
    edges = torch.randint(64, (2, 256))
    return classifier(GCN(16, WIDTH, 7), torch.randn(64, 16), edges, labels=classes(7, 64))


def recommender() -> Made:
    words, offsets = torch.randint(50, (3, 256)), torch.arange(0, 256, 4).repeat(3, 1)
    lost = F.binary_cross_entropy_with_logits
    net = DLRM(13, [50] * 3, 16)
    return Step(lambda m, x, w, o, y: lost(m.net(x, w, o), y), net=net), (
        torch.randn(64, 13),
        words,
        offsets,
        torch.rand(64),
    )


def packed() -> Made:
    return classifier(
        Packed(16, WIDTH, 10), torch.randn(6, 12, 16), torch.tensor([12, 9, 7, 7, 4, 2]), labels=classes(10, 6)
    )


IMAGES = 4, 3, 32, 32
ZOO: dict[str, Callable[[], Made]] = {
    "LoRA Llama": lora_llama,
    "frozen ViT": frozen_vit,
    "last layer of BERT": bert_last_layer,
    "EMA teacher": ema_teacher,
    "BYOL": byol,
    "DINO": lambda: (Dino(), (rows(), rows())),
    "distillation": distillation,
    "GAN, generator": generator_step,
    "GAN, discriminator": discriminator_step,
    "actor-critic": actor_critic,
    "VQ-VAE": vq_vae,
    "quantisation-aware": lambda: classifier(
        nn.Sequential(Quantised(WIDTH, 64), nn.ReLU(), Quantised(64, 10)), rows(), labels=classes()
    ),
    "gradient reversal": gradient_reversal,
    "Gumbel, hard": gumbel,
    "checkpoints": lambda: checkpointed(use_reentrant=False),
    "reentrant checkpoints": lambda: checkpointed(use_reentrant=True),
    "checkpoints of Hugging Face": hugging_face_checkpoints,
    "autocast": mixed_precision,
    "tied GPT": lambda: classifier(
        Decoder(100, WIDTH, tied=True), torch.randint(100, (4, 32)), labels=classes(100, 128)
    ),
    "weight norm": lambda: classifier(
        convolutions(nn.utils.parametrizations.weight_norm), torch.randn(IMAGES), labels=classes(10, 4)
    ),
    "spectral norm": lambda: classifier(
        convolutions(nn.utils.parametrizations.spectral_norm), torch.randn(IMAGES), labels=classes(10, 4)
    ),
    "MobileNetV3": lambda: classifier(MobileNet(), torch.randn(IMAGES), labels=classes(10, 4)),
    "U-Net": lambda: (
        Step(lambda m, x, noise: F.mse_loss(m.net(x + noise), noise), net=UNet(16)),
        (torch.randn(IMAGES), torch.randn(IMAGES)),
    ),
    "RNN, sequence first": lambda: recurrent(batch_first=False),
    "LSTM, batch first": lambda: recurrent(batch_first=True),
    "packed LSTM": packed,
    "mixture of experts": lambda: classifier(Mixture(WIDTH, 4), rows(), labels=classes(WIDTH)),
    "GCN": graph_network,
    "DLRM": recommender,
    "Conformer": lambda: classifier(Conformer(WIDTH, 10), torch.randn(4, 32, WIDTH), labels=classes(10, 4)),
    "RMSNorm and SwiGLU": lambda: classifier(
        Decoder(100, WIDTH, tied=False), torch.randint(100, (4, 32)), labels=classes(100, 128)
    ),
    "contrastive": contrastive,
    "DoRA": lambda: classifier(
        nn.Sequential(LowRank(64), nn.ReLU(), nn.Linear(64, 10)), rows(64)[:8], labels=classes(10, 8)
    ),
    "SIREN": sines,
    "int8 buffers": int8_buffers,
}
