"""Decoder-only Transformer with rotary positions and gated feed-forward nets: Llama (Touvron et al. 2023)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, check_multiple, tokens

CONFIGURATIONS = {
    "llama-7b": "layers=32,width=4096,heads=32,inner=11008,sequence=2048,batch=1",
    "llama-13b": "layers=40,width=5120,heads=40,inner=13824,sequence=2048,batch=1",
}
PARAMETERS = {"llama-7b": 6.7e9, "llama-13b": 13.0e9}  # table 2
TRAIN = (
    "layers=3,width=512,heads=8,inner=1376,sequence=256,batch=8",
    "layers=4,width=1024,heads=16,inner=2752,sequence=512,batch=4",
    "layers=8,width=768,heads=12,inner=2048,sequence=256,batch=16",
    "layers=8,width=1024,heads=16,inner=2752,sequence=512,batch=8",
    "layers=12,width=1024,heads=16,inner=2752,sequence=256,batch=16",
    "layers=16,width=2048,heads=32,inner=5504,sequence=256,batch=4",
)
TEST = (
    "layers=6,width=1024,heads=16,inner=2752,sequence=512,batch=8",
    "layers=10,width=768,heads=12,inner=2048,sequence=512,batch=8",
    "layers=14,width=1536,heads=24,inner=4096,sequence=256,batch=8",
)
VOCABULARY = 32000


def build(
    *, layers: int = 8, width: int = 1024, heads: int = 16, inner: int = 2752, sequence: int = 256, batch: int = 8
) -> Model:
    """The model and its example inputs: tokens and targets, each (batch, sequence); `inner`: the gated nets' width."""
    check_multiple("llama", "width", width, of=2 * heads, which="twice heads")
    with torch.device("meta"):
        return Llama(layers, width, heads, inner, sequence), tokens(batch, sequence)


class RootMeanSquareNorm(nn.Module):
    """Scales each token to a mean square of one (Zhang & Sennrich 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6) * self.weight


class LlamaAttention(nn.Module):
    """Causal self-attention with rotary positions (Su et al. 2021)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.heads = heads

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor) -> Tensor:
        """(batch, sequence, width) from the same; cosine and sine are (sequence, width / heads)."""
        batch, sequence, _ = x.shape
        query, key, value = (
            project(x).view(batch, sequence, self.heads, -1).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        query, key = (part * cosine + _rotated_half(part) * sine for part in (query, key))
        scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5 + mask
        mixed = (scores.softmax(dim=-1) @ value).transpose(1, 2).reshape(x.shape)
        projected: Tensor = self.out(mixed)
        return projected


class LlamaLayer(nn.Module):
    """Attention and a gated feed-forward net, a norm before each."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.attention_norm = RootMeanSquareNorm(width)
        self.attention = LlamaAttention(width, heads)
        self.feed_forward_norm = RootMeanSquareNorm(width)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor) -> Tensor:
        """(batch, sequence, width) from the same."""
        x = x + self.attention(self.attention_norm(x), cosine, sine, mask)
        y = self.feed_forward_norm(x)
        deeper: Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return deeper


class Llama(nn.Module):
    """Embedding, layers, and the prediction of the next token at every position."""

    def __init__(self, layers: int, width: int, heads: int, inner: int, sequence: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads, inner) for _ in range(layers))
        self.norm = RootMeanSquareNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        for name in ("cosine", "sine"):
            self.register_buffer(name, torch.empty(sequence, width // heads))
        self.register_buffer("mask", torch.empty(sequence, sequence))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over batch and positions."""
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine, self.mask)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def _rotated_half(x: Tensor) -> Tensor:
    """The second half of the last dimension, negated, then the first."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)
