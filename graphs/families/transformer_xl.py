"""Transformer language model with memory of earlier segments: Transformer-XL (Dai et al. 2019).

Attention sees positions relative to each other (section 3.3). GDP's have 2, 4 and 8 layers, of sizes that its paper
does not give; width=1024, heads=16 are those of the large model.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, check_multiple, tokens
from graphs.families._layers import LayerKnobs, PostNormLayer

CONFIGURATIONS = {
    "transformer-xl-2": "layers=2,width=1024,heads=16,sequence=256,batch=16",
    "transformer-xl-4": "layers=4,width=1024,heads=16,sequence=256,batch=16",
    "transformer-xl-8": "layers=8,width=1024,heads=16,sequence=256,batch=16",
}
TRAIN = (
    "layers=2,width=512,heads=8,sequence=128,batch=8", "layers=2,width=1024,heads=16,sequence=384,batch=16",
    "layers=3,width=768,heads=12,sequence=256,batch=16", "layers=4,width=1024,heads=16,sequence=128,batch=32",
    "layers=6,width=768,heads=12,sequence=256,batch=16", "layers=8,width=1024,heads=16,sequence=128,batch=16",
)  # fmt: skip
TEST = (
    "layers=3,width=1024,heads=16,sequence=256,batch=16", "layers=5,width=768,heads=12,sequence=256,batch=24",
    "layers=8,width=1024,heads=16,sequence=192,batch=16",
)  # fmt: skip


def build(
    *, layers: int = 4, width: int = 512, heads: int = 8, sequence: int = 128, batch: int = 16, vocabulary: int = 32000
) -> Model:
    """The model and its example inputs: tokens and targets, (batch, sequence), and memory.

    The memory holds the inputs of each layer in the segment before: (layers, batch, sequence, width).
    """
    check_multiple("transformer_xl", "width", width, of=heads, which="heads")
    with torch.device("meta"):
        memory = torch.empty(layers, batch, sequence, width)
        return TransformerXL(layers, width, heads, sequence, vocabulary), (*tokens(batch, sequence), memory)


class RelativeAttention(nn.Module):
    """Attention over a segment and the memory before it, by content and by distance."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.distance = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.content_bias = nn.Parameter(torch.empty(heads, 1, width // heads))
        self.distance_bias = nn.Parameter(torch.empty(heads, 1, width // heads))
        self.heads = heads

    def forward(self, x: Tensor, seen: Tensor, distances: Tensor, mask: Tensor) -> Tensor:
        """(batch, sequence, width) from the same.

        What may be seen is (batch, length, width). The distances are (length, width), or (2 length, width) if what
        comes later may be seen, too.
        """
        query = self._split(self.query(x))
        key, value = (self._split(part) for part in self.key_value(seen).chunk(2, dim=-1))
        distance = self.distance(distances).view(len(distances), self.heads, -1).permute(1, 2, 0)
        by_content = (query + self.content_bias) @ key.transpose(2, 3)
        by_distance = _shifted((query + self.distance_bias) @ distance)
        if len(distances) > seen.shape[1]:
            by_distance = by_distance[..., : seen.shape[1]]
        scores = (by_content + by_distance) / query.shape[-1] ** 0.5 + mask
        mixed = (scores.softmax(dim=-1) @ value).transpose(1, 2).reshape(x.shape)
        projected: Tensor = self.out(mixed)
        return projected

    def _split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)


def relative_layers(layers: int, width: int, heads: int) -> nn.ModuleList:
    """Layers with relative attention; their `forward` takes what that of `RelativeAttention` takes."""
    knobs = LayerKnobs("transformer_xl", width, heads, activation="relu")
    return nn.ModuleList(PostNormLayer(RelativeAttention(width, heads), knobs) for _ in range(layers))


class TransformerXL(nn.Module):
    """Embedding, layers that each see their own memory, and the prediction of the next token."""

    def __init__(self, layers: int, width: int, heads: int, sequence: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = relative_layers(layers, width, heads)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("distances", torch.empty(2 * sequence, width))  # sines and cosines
        self.register_buffer("mask", torch.empty(sequence, 2 * sequence))

    def forward(self, tokens: Tensor, targets: Tensor, memory: Tensor) -> Tensor:
        """Mean cross-entropy over batch and positions."""
        x = self.tokens(tokens)
        for i, layer in enumerate(self.layers):
            x = layer(x, torch.cat([memory[i], x], dim=1), self.distances, self.mask)
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


def _shifted(scores: Tensor) -> Tensor:
    """Row i moved so that its columns count distances from i (appendix B)."""
    batch, heads, rows, columns = scores.shape
    padded = F.pad(scores, (1, 0)).view(batch, heads, columns + 1, rows)
    return padded[:, :, 1:].reshape(batch, heads, rows, columns)
