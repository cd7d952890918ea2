"""Decoder-only Transformer with rotary positions and gated feed-forward nets: Llama (Touvron et al. 2023)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, check_multiple, tokens
from graphs.families._layers import EAGER, Attention, LayerKnobs

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
    *, layers: int = 8, width: int = 1024, heads: int = 16, inner: int = 2752, sequence: int = 256, batch: int = 8,
    vocabulary: int = VOCABULARY, kv_heads: int = 0, attention: str = EAGER,
) -> Model:  # fmt: skip
    """The model and its example inputs: tokens and targets, each (batch, sequence); `inner`: the gated nets' width.

    The other knobs are those of `LayerKnobs`.
    """
    check_multiple("llama", "width", width, of=2 * heads, which="twice heads")
    knobs = LayerKnobs("llama", width, heads, inner, kv_heads, attention=attention, separate=True)
    with torch.device("meta"):
        return Llama(layers, knobs, sequence, vocabulary), tokens(batch, sequence)


class RootMeanSquareNorm(nn.Module):
    """Scales each token to a mean square of one (Zhang & Sennrich 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6) * self.weight


class LlamaAttention(Attention):
    """Causal self-attention with rotary positions (Su et al. 2021)."""

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        """(batch, sequence, width) from the same; cosine and sine are (sequence, width / heads)."""
        query, key, value = self.parts(x)
        query, key = (part * cosine + _rotated_half(part) * sine for part in (query, key))
        scores = self.scores(query, key, mask)
        mixed = self.mixed(query, key, value, scores).transpose(1, 2).reshape(x.shape)
        projected: Tensor = self.out(mixed)
        return projected


class LlamaLayer(nn.Module):
    """Attention and a gated feed-forward net, a norm before each."""

    def __init__(self, knobs: LayerKnobs) -> None:
        super().__init__()
        width, inner = knobs.width, knobs.inner
        self.attention_norm = RootMeanSquareNorm(width)
        self.attention = LlamaAttention(knobs, bias=False)
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

    def __init__(self, layers: int, knobs: LayerKnobs, sequence: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, knobs.width)
        self.layers = nn.ModuleList(LlamaLayer(knobs) for _ in range(layers))
        self.norm = RootMeanSquareNorm(knobs.width)
        self.head = nn.Linear(knobs.width, vocabulary, bias=False)
        for name in ("cosine", "sine"):
            self.register_buffer(name, torch.empty(sequence, knobs.width // knobs.heads))
        self.register_buffer("mask", torch.empty(sequence, sequence))  # added to scores

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
