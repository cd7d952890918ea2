"""Convolutional image classifier: blocks of four parallel branches, after Inception.

The branches are those of Szegedy et al. (2016), figure 5 (1x1; 1x1-3x3; 1x1-3x3-3x3; pool-1x1); that all blocks are
alike, and when the channels double, is ours.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, images
from graphs.families.inception_v3 import Unit, chain

CONFIGURATIONS = {"inception-9": "blocks=9,width=64,image=299,batch=128"}
TRAIN = (
    "blocks=4,width=32,image=160,batch=32", "blocks=6,width=64,image=160,batch=32",
    "blocks=6,width=48,image=224,batch=64", "blocks=8,width=64,image=192,batch=64",
    "blocks=9,width=32,image=299,batch=32", "blocks=9,width=64,image=299,batch=128",
    "blocks=12,width=48,image=224,batch=128", "blocks=12,width=96,image=160,batch=64",
)  # fmt: skip
TEST = (
    "blocks=7,width=48,image=192,batch=48", "blocks=10,width=64,image=224,batch=64",
    "blocks=11,width=64,image=299,batch=96", "blocks=15,width=64,image=224,batch=128",
)  # fmt: skip
CLASSES = 1000
BLOCKS_PER_STAGE = 3  # then the image halves and the channels double, at most twice


def build(*, blocks: int = 6, width: int = 32, image: int = 160, batch: int = 32) -> Model:
    """The model and its example inputs: images (batch, 3, image, image) and labels (batch,).

    `width` is the number of channels of each branch in the first stage.
    """
    with torch.device("meta"):
        return Inception(blocks, width), images(batch, image)


class InceptionBlock(nn.Module):
    """Four branches side by side, concatenated: 4 x width channels."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [
                Unit(channels, width, 1),
                chain(channels, [(width, 1), (width, 3)]),
                chain(channels, [(width, 1), (width, 3), (width, 3)]),
                nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), Unit(channels, width, 1)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 4 width, height, width)."""
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class Inception(nn.Module):
    """Stem, blocks in stages, and a classifier."""

    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        first = Unit(3, width, 3, stride=2, padded=True)
        self.stem = nn.Sequential(first, Unit(width, 2 * width, 3), nn.MaxPool2d(3, 2, padding=1))
        stages = [min(i // BLOCKS_PER_STAGE, 2) for i in range(blocks)]
        outs = [4 * width * 2**stage for stage in stages]
        self.blocks = nn.ModuleList(
            InceptionBlock(channels, out // 4) for channels, out in zip([2 * width, *outs], outs, strict=False)
        )
        self.starts_stage = [i > 0 and stage > stages[i - 1] for i, stage in enumerate(stages)]
        self.reduce = nn.MaxPool2d(3, 2, padding=1)
        self.classifier = nn.Linear(outs[-1], CLASSES)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy over the batch."""
        x = self.stem(images)
        for block, starts_stage in zip(self.blocks, self.starts_stage, strict=True):
            x = block(self.reduce(x) if starts_stage else x)
        return F.cross_entropy(self.classifier(x.mean(dim=(2, 3))), labels)
