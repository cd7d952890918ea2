"""Transformer that predicts words in any order: XLNet (Yang et al. 2019), its content and its query stream.

XLNet-36 is DAPPLE's, with 36 layers as wide as those of XLNet-large.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, check_multiple, tokens
from graphs.families.transformer_xl import relative_layers

CONFIGURATIONS = {
    "xlnet-24": "layers=24,width=1024,heads=16,sequence=128,batch=4",
    "xlnet-36": "layers=36,width=1024,heads=16,sequence=128,batch=1",
}
TRAIN = (
    "layers=2,width=512,heads=8,sequence=128,batch=8", "layers=3,width=768,heads=12,sequence=256,batch=8",
    "layers=4,width=1024,heads=16,sequence=128,batch=16", "layers=6,width=768,heads=12,sequence=256,batch=8",
    "layers=8,width=1024,heads=16,sequence=128,batch=8", "layers=12,width=768,heads=12,sequence=128,batch=16",
)  # fmt: skip
TEST = (
    "layers=4,width=768,heads=12,sequence=256,batch=12", "layers=6,width=1024,heads=16,sequence=128,batch=16",
    "layers=10,width=1024,heads=16,sequence=128,batch=8",
)  # fmt: skip
VOCABULARY = 32000


def build(*, layers: int = 12, width: int = 768, heads: int = 12, sequence: int = 128, batch: int = 8) -> Model:
    """The model and its example inputs: tokens and targets, each (batch, sequence)."""
    check_multiple("xlnet", "width", width, of=heads, which="heads")
    with torch.device("meta"):
        return XLNet(layers, width, heads, sequence), tokens(batch, sequence)


class XLNet(nn.Module):
    """Embedding, layers that serve both streams, and the prediction of the words in the query stream."""

    def __init__(self, layers: int, width: int, heads: int, sequence: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.query = nn.Parameter(torch.empty(1, 1, width))
        self.layers = relative_layers(layers, width, heads)
        self.bias = nn.Parameter(torch.empty(VOCABULARY))
        self.register_buffer("distances", torch.empty(2 * sequence, width))  # to what is before and behind
        self.register_buffer("sees_itself", torch.empty(sequence, sequence))
        self.register_buffer("sees_others", torch.empty(sequence, sequence))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over batch and positions."""
        content = self.tokens(tokens)
        query = self.query.expand_as(content)
        for layer in self.layers:
            asked = layer(query, content, self.distances, self.sees_others)
            content = layer(content, content, self.distances, self.sees_itself)
            query = asked
        return F.cross_entropy(F.linear(query, self.tokens.weight, self.bias).flatten(0, 1), targets.flatten())
