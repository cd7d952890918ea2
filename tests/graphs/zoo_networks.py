"""Networks of the zoo, and the step that is made of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROWS = 256
Made = tuple[nn.Module, tuple[Any, ...]]


class Step(nn.Module):
    """Networks by name, and a function of them and of the inputs that returns the loss."""

    def __init__(self, loss: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.loss = loss
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *inputs: Any) -> Any:
        return self.loss(self, *inputs)


def frozen(part: nn.Module) -> nn.Module:
    return part.requires_grad_(requires_grad=False)


def classes(of: int = 10, count: int = ROWS) -> Tensor:
    return torch.randint(of, (count,))


def mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.GELU()]
    return nn.Sequential(*layers[:-1])


class RMSNorm(nn.Module):
    """In ops, as models have it in their code."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class SwiGLU(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return out


class Block(nn.Module):
    """Causal attention and a gated layer, with norms before them."""

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = RMSNorm(width), RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mlp = SwiGLU(width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        read = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(read.transpose(1, 2).reshape(batch, length, width))
        out: Tensor = x + self.mlp(self.after(x))
        return out


class Decoder(nn.Module):
    """Words to a score of each next one, (batch * length, words)."""

    def __init__(self, words: int, width: int, *, tied: bool) -> None:
        super().__init__()
        self.words, self.blocks = nn.Embedding(words, width), nn.ModuleList(Block(width) for _ in range(2))
        self.norm, self.head = RMSNorm(width), nn.Linear(width, words, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(self.norm(x)).flatten(0, 1)
        return out


def convolutions(parametrised: Callable[[nn.Module], nn.Module]) -> nn.Sequential:
    return nn.Sequential(
        parametrised(nn.Conv2d(3, 16, 3, padding=1)), nn.LeakyReLU(0.2),
        parametrised(nn.Conv2d(16, 32, 3, stride=2, padding=1)), nn.LeakyReLU(0.2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), parametrised(nn.Linear(32, 10)),
    )  # fmt: skip


class Inverted(nn.Module):
    """An inverted residual with squeeze and excitation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        wide = 3 * width
        self.expand = nn.Sequential(
            nn.Conv2d(width, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.Hardswish(inplace=True)
        )
        self.depth = nn.Sequential(
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.Hardswish(inplace=True),
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(wide, 8, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, wide, 1),
            nn.Hardsigmoid(),
        )
        self.project = nn.Sequential(nn.Conv2d(wide, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        h = self.depth(self.expand(x))
        out: Tensor = x + self.project(h * self.squeeze(h))
        return out


class MobileNet(nn.Sequential):
    def __init__(self) -> None:
        stem = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.Hardswish(inplace=True)
        head = nn.Linear(16, 64), nn.Hardswish(inplace=True), nn.Dropout(0.2), nn.Linear(64, 10)
        super().__init__(*stem, Inverted(16), Inverted(16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), *head)


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()

        def twice(before: int, after: int) -> nn.Sequential:
            first = nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU()
            return nn.Sequential(*first, nn.Conv2d(after, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU())

        self.down = nn.ModuleList([twice(3, width), twice(width, 2 * width), twice(2 * width, 4 * width)])
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * n * width, n * width, 2, 2) for n in (2, 1))
        self.join = nn.ModuleList(twice(2 * n * width, n * width) for n in (2, 1))
        self.out = nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for part in self.down:
            x = part(x if not kept else F.max_pool2d(x, 2))
            kept.append(x)
        for up, join, skip in zip(self.up, self.join, reversed(kept[:-1]), strict=True):
            x = join(torch.cat([skip, up(x)], dim=1))
        out: Tensor = self.out(x)
        return out


class Packed(nn.Module):
    """An LSTM of sequences of unlike lengths; their last states give the classes."""

    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(inputs, width, batch_first=True), nn.Linear(width, classes)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, (last, _) = self.lstm(packed)
        out: Tensor = self.head(last[-1])
        return out


class Mixture(nn.Module):
    """Each row goes through its two best experts, a loop over these."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(mlp(width, 2 * width, width) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            out.index_add_(0, row, weights[row, place, None] * expert(x[row]))
        return out


class GCN(nn.Module):
    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        from torch_geometric.nn import GCNConv  # takes seconds to import

        self.first, self.second = GCNConv(inputs, width), GCNConv(width, classes)

    def forward(self, x: Tensor, edges: Tensor) -> Any:
        return self.second(F.dropout(self.first(x, edges).relu(), training=self.training), edges)


class DLRM(nn.Module):
    """Dense features and bags of words of each table, which meet in products."""

    def __init__(self, dense: int, tables: list[int], width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for rows in tables)
        self.bottom, meetings = mlp(dense, 64, width), (len(tables) + 1) * len(tables) // 2
        self.top = mlp(width + meetings, 64, 1)

    def forward(self, dense: Tensor, words: Tensor, offsets: Tensor) -> Tensor:
        x = self.bottom(dense)
        bags = [table(words[i], offsets[i]) for i, table in enumerate(self.tables)]
        features = torch.stack([x, *bags], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        i, j = torch.tril_indices(len(bags) + 1, len(bags) + 1, offset=-1)
        out: Tensor = self.top(torch.cat([x, products[:, i, j]], dim=1)).squeeze(-1)
        return out


class Conformer(nn.Module):
    """One block: half a feed-forward layer, attention, a convolution, the other half."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.halves = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
            for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.convolution = nn.Sequential(
            nn.Conv1d(width, 2 * width, 1), nn.GLU(dim=1), nn.Conv1d(width, width, 7, padding=3, groups=width),
            nn.BatchNorm1d(width), nn.SiLU(), nn.Conv1d(width, width, 1),
        )  # fmt: skip
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.halves[0](x)
        seen = self.norms[0](x)
        x = x + self.attention(seen, seen, seen, need_weights=False)[0]
        x = x + self.convolution(self.norms[1](x).transpose(1, 2)).transpose(1, 2)
        x = x + 0.5 * self.halves[1](x)
        out: Tensor = self.head(self.norms[2](x).mean(1))
        return out
