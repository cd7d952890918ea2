"""Bidirectional Transformer encoder that fills in masked words: BERT (Devlin et al. 2019).

Layer norms come after the blocks; the output layer shares the embedding's weights. BERT-48 is DAPPLE's.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, tokens
from graphs.families._layers import SCALED, Attention, LayerKnobs, PostNormLayer

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


def build(
    *, layers: int = 12, width: int = 768, heads: int = 12, sequence: int = 128, batch: int = 16, inner: int = 0,
    dropout: float = 0.0, activation: str = "gelu", attention: str = SCALED, separate: bool = False, classes: int = 0,
) -> Model:  # fmt: skip
    """The model and its example inputs: tokens, segments and targets, each (batch, sequence).

    With `classes` the first word is classified into so many instead of filling in words, and targets are (batch,). The
    other knobs are those of `LayerKnobs`.
    """
    knobs = LayerKnobs("bert", width, heads, inner, 0, dropout, activation, attention, separate, causal=False)
    with torch.device("meta"):
        words, segments, targets = tokens(batch, sequence, inputs=3)
        module = Bert(layers, knobs, sequence, Classifier(knobs, classes) if classes else None)
        return module, (words, segments, targets[:, 0].contiguous() if classes else targets)


class Bert(nn.Module):
    """Embeddings, layers, and the prediction of the words that were masked, or of a class."""

    def __init__(self, layers: int, knobs: LayerKnobs, sequence: int, classifier: nn.Module | None) -> None:
        super().__init__()
        width = knobs.width
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.segments = nn.Embedding(2, width)
        self.positions = nn.Embedding(POSITIONS, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = knobs.dropped()
        self.layers = nn.ModuleList(PostNormLayer(Attention(knobs), knobs) for _ in range(layers))
        self.classifier = classifier
        if classifier is None:
            self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
            self.bias = nn.Parameter(torch.empty(VOCABULARY))
        self.register_buffer("mask", knobs.mask(sequence))
        self.register_buffer("places", torch.arange(sequence))

    def forward(self, tokens: Tensor, segments: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over batch and positions, or over the batch."""
        x = self.dropout(self.norm(self.tokens(tokens) + self.segments(segments) + self.positions(self.places)))
        for layer in self.layers:
            x = layer(x, self.mask)
        if self.classifier is not None:
            return F.cross_entropy(self.classifier(x[:, 0]), targets)
        logits = F.linear(self.transform(x), self.tokens.weight, self.bias)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Classifier(nn.Sequential):
    """Of a text, by its first word: a product with tanh, which BERT calls the pooler, dropout, and a product."""

    def __init__(self, knobs: LayerKnobs, classes: int) -> None:
        super().__init__(
            nn.Linear(knobs.width, knobs.width), nn.Tanh(), knobs.dropped(), nn.Linear(knobs.width, classes)
        )
