"""Bidirectional Transformer encoder that fills in masked words: BERT (Devlin et al. 2019).

Layer norms come after the blocks; the output layer shares the embedding's weights. BERT-48 is DAPPLE's.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, check_multiple, tokens
from graphs.families.transformer import Attention, PostNormLayer

CONFIGURATIONS = {
    "bert-base": "layers=12,width=768,heads=12,sequence=512,batch=8",
    "bert-large": "layers=24,width=1024,heads=16,sequence=512,batch=4",
    "bert-48": "layers=48,width=1024,heads=16,sequence=128,batch=2",
}
PARAMETERS = {"bert-base": 110e6, "bert-large": 340e6, "bert-48": 640e6}  # the paper; DAPPLE (2021), table II
TRAIN = (
    "layers=3,width=512,heads=8,sequence=128,batch=16", "layers=4,width=768,heads=12,sequence=256,batch=16",
    "layers=6,width=768,heads=12,sequence=512,batch=8", "layers=8,width=1024,heads=16,sequence=256,batch=16",
    "layers=12,width=768,heads=12,sequence=256,batch=32", "layers=16,width=1024,heads=16,sequence=128,batch=32",
)  # fmt: skip
TEST = (
    "layers=6,width=1024,heads=16,sequence=256,batch=16", "layers=10,width=768,heads=12,sequence=512,batch=8",
    "layers=24,width=1024,heads=16,sequence=128,batch=32",
)  # fmt: skip
VOCABULARY = 30522
POSITIONS = 512


def build(*, layers: int = 12, width: int = 768, heads: int = 12, sequence: int = 128, batch: int = 16) -> Model:
    """The model and its example inputs: tokens, segments and targets, each (batch, sequence)."""
    check_multiple("bert", "width", width, of=heads, which="heads")
    with torch.device("meta"):
        return Bert(layers, width, heads, sequence), tokens(batch, sequence, inputs=3)


class Bert(nn.Module):
    """Embeddings, layers, and the prediction of the words that were masked."""

    def __init__(self, layers: int, width: int, heads: int, sequence: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.segments = nn.Embedding(2, width)
        self.positions = nn.Embedding(POSITIONS, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(PostNormLayer(Attention(width, heads), width, nn.GELU()) for _ in range(layers))
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.empty(VOCABULARY))
        self.register_buffer("mask", torch.zeros(sequence, sequence))
        self.register_buffer("places", torch.arange(sequence))

    def forward(self, tokens: Tensor, segments: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over batch and positions."""
        x = self.norm(self.tokens(tokens) + self.segments(segments) + self.positions(self.places))
        for layer in self.layers:
            x = layer(x, self.mask)
        logits = F.linear(self.transform(x), self.tokens.weight, self.bias)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
