"""Transformer image classifier over patches: ViT (Dosovitskiy et al. 2021), table 1."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, check_multiple, images
from graphs.families._layers import SCALED, LayerKnobs, TransformerLayer

CONFIGURATIONS = {
    "vit-base": "layers=12,width=768,heads=12,image=224,batch=64",
    "vit-large": "layers=24,width=1024,heads=16,image=224,batch=32",
}
PARAMETERS = {"vit-base": 86e6, "vit-large": 307e6}  # table 1
TRAIN = (
    "layers=3,width=384,heads=6,image=224,batch=16", "layers=4,width=768,heads=12,image=160,batch=32",
    "layers=6,width=512,heads=8,image=224,batch=64", "layers=8,width=768,heads=12,image=224,batch=32",
    "layers=12,width=384,heads=6,image=224,batch=64", "layers=16,width=768,heads=12,image=160,batch=64",
)  # fmt: skip
TEST = (
    "layers=6,width=768,heads=12,image=224,batch=48", "layers=10,width=512,heads=8,image=224,batch=64",
    "layers=16,width=1024,heads=16,image=160,batch=32",
)  # fmt: skip
PATCH = 16
CLASSES = 1000


def build(
    *, layers: int = 12, width: int = 768, heads: int = 12, image: int = 224, batch: int = 32, dropout: float = 0.0,
    attention: str = SCALED,
) -> Model:  # fmt: skip
    """The model and its example inputs: images (batch, 3, image, image) and labels (batch,).

    Dropout and the way of computing attention are knobs of `LayerKnobs`.
    """
    knobs = LayerKnobs("vit", width, heads, dropout=dropout, attention=attention, causal=False)
    check_multiple("vit", "image", image, of=PATCH, which="the side of a patch")
    with torch.device("meta"):
        return VisionTransformer(layers, knobs, image), images(batch, image)


class VisionTransformer(nn.Module):
    """Patches, a class token, layers, and a classifier of that token."""

    def __init__(self, layers: int, knobs: LayerKnobs, image: int) -> None:
        super().__init__()
        width = knobs.width
        length = (image // PATCH) ** 2 + 1
        self.patches = nn.Conv2d(3, width, PATCH, PATCH)
        self.token = nn.Parameter(torch.empty(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, length, width))
        self.dropout = knobs.dropped()
        self.layers = nn.ModuleList(TransformerLayer(knobs) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, CLASSES)
        self.register_buffer("mask", knobs.mask(length))

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy over the batch."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        x = self.dropout(torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1) + self.positions)
        for layer in self.layers:
            x = layer(x, self.mask)
        return F.cross_entropy(self.classifier(self.norm(x)[:, 0]), labels)
