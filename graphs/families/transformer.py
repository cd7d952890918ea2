"""Transformer language model: layers of causal self-attention and a feed-forward net.

Decoder-only, with the layer norms before the blocks, as GPT-2 (Radford et al. 2019): width=768, heads=12, layers=12,
sequence=1024 there. Attention is computed in steps (product, softmax, product), as before fused kernels existed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, check_multiple, tokens

CONFIGURATIONS = {
    "gpt2": "layers=12,width=768,heads=12,sequence=1024,batch=8,vocabulary=50257,tied=true",
    "gpt2-medium": "layers=24,width=1024,heads=16,sequence=1024,batch=4,vocabulary=50257,tied=true",
    "gpt2-xl": "layers=48,width=1600,heads=25,sequence=1024,batch=1,vocabulary=50257,tied=true",
}
PARAMETERS = {"gpt2": 124.4e6, "gpt2-medium": 354.8e6, "gpt2-xl": 1557.6e6}  # of the released models
TRAIN = (
    "layers=4,width=512,heads=8,sequence=512,batch=8", "layers=6,width=768,heads=12,sequence=512,batch=8",
    "layers=8,width=1024,heads=16,sequence=256,batch=16", "layers=12,width=768,heads=12,sequence=256,batch=16",
    "layers=12,width=1024,heads=16,sequence=512,batch=8", "layers=16,width=1024,heads=16,sequence=512,batch=16",
    "layers=20,width=1024,heads=16,sequence=256,batch=32", "layers=24,width=1280,heads=20,sequence=256,batch=16",
)  # fmt: skip
TEST = (
    "layers=10,width=768,heads=12,sequence=512,batch=12", "layers=14,width=1024,heads=16,sequence=384,batch=16",
    "layers=24,width=1024,heads=16,sequence=384,batch=16", "layers=32,width=1280,heads=20,sequence=256,batch=16",
)  # fmt: skip


def build(
    *, layers: int = 4, width: int = 512, heads: int = 8, sequence: int = 256, batch: int = 8, vocabulary: int = 32000,
    tied: bool = False,
) -> Model:  # fmt: skip
    """The model and its example inputs: tokens and targets, each (batch, sequence).

    With `tied`, as in GPT-2, the output layer shares the embedding's weights.
    """
    check_multiple("transformer", "width", width, of=heads, which="heads")
    with torch.device("meta"):
        module = TransformerLanguageModel(layers, width, heads, sequence, vocabulary)
        if tied:
            module.head.weight = module.tokens.weight
        return module, tokens(batch, sequence)


class Attention(nn.Module):
    """Causal self-attention with several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.heads = heads

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(batch, sequence, width) from the same, and a mask (sequence, sequence) of zeros and minus infinities."""
        batch, sequence, width = x.shape
        query, key, value = (
            part.view(batch, sequence, self.heads, -1).transpose(1, 2) for part in self.query_key_value(x).chunk(3, -1)
        )
        scores = query / math.sqrt(width / self.heads) @ key.transpose(2, 3) + mask
        mixed = scores.softmax(dim=-1) @ value
        projected: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, sequence, width))
        return projected


class TransformerLayer(nn.Module):
    """Attention and feed-forward net, each with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(batch, sequence, width) from the same."""
        x = x + self.attention(self.attention_norm(x), mask)
        deeper: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return deeper


class PostNormLayer(nn.Module):
    """Attention and feed-forward net, a layer norm after each, as in the first Transformer (Vaswani et al. 2017)."""

    def __init__(self, attention: nn.Module, width: int, activation: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), activation, nn.Linear(4 * width, width))
        self.feed_forward_norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, *context: Tensor) -> Tensor:
        """(batch, sequence, width) from the same, and whatever else the attention takes."""
        x = self.attention_norm(x + self.attention(x, *context))
        deeper: Tensor = self.feed_forward_norm(x + self.feed_forward(x))
        return deeper


class TransformerLanguageModel(nn.Module):
    """Embeddings, layers, and the prediction of the next token at every position."""

    def __init__(self, layers: int, width: int, heads: int, sequence: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.empty(sequence, width))
        self.layers = nn.ModuleList(TransformerLayer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("mask", torch.empty(sequence, sequence).fill_(-math.inf).triu(1))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over batch and positions."""
        x = self.tokens(tokens) + self.positions
        for layer in self.layers:
            x = layer(x, self.mask)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())
