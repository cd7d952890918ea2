"""Transformer language model: layers of causal self-attention and a feed-forward net.

Decoder-only, with the layer norms before the blocks, as GPT-2 (Radford et al. 2019): width=768, heads=12, layers=12,
sequence=1024 there. How attention is computed, dropout and the activation are knobs (`graphs.families._layers`).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, tokens
from graphs.families._layers import SCALED, LayerKnobs, TransformerLayer

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
    tied: bool = False, inner: int = 0, kv_heads: int = 0, dropout: float = 0.0, activation: str = "gelu",
    attention: str = SCALED, separate: bool = False, attention_dropout: bool = True,
) -> Model:  # fmt: skip
    """The model and its example inputs: tokens and targets, each (batch, sequence).

    With `tied`, as in GPT-2, the output layer shares the embedding's weights. Other knobs are those of `LayerKnobs`.
    """
    knobs = LayerKnobs(
        "transformer", width, heads, inner, kv_heads, dropout, activation, attention, separate,
        attention_dropout=attention_dropout,
    )  # fmt: skip
    with torch.device("meta"):
        module = TransformerLanguageModel(layers, knobs, sequence, vocabulary)
        if tied:
            module.head.weight = module.tokens.weight
        return module, tokens(batch, sequence)


class TransformerLanguageModel(nn.Module):
    """Embeddings, layers, and the prediction of the next token at every position."""

    def __init__(self, layers: int, knobs: LayerKnobs, sequence: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, knobs.width)
        self.positions = nn.Parameter(torch.empty(sequence, knobs.width))
        self.dropout = knobs.dropped()
        self.layers = nn.ModuleList(TransformerLayer(knobs) for _ in range(layers))
        self.norm = nn.LayerNorm(knobs.width)
        self.head = nn.Linear(knobs.width, vocabulary, bias=False)
        self.register_buffer("mask", knobs.mask(sequence))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over batch and positions."""
        x = self.dropout(self.tokens(tokens) + self.positions)
        for layer in self.layers:
            x = layer(x, self.mask)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())
