"""Convolutional image classifier of mixed blocks: Inception-V3 (Szegedy et al. 2016), with its auxiliary classifier.

Channels are those of the release that torchvision follows. `image` of at least 139 keeps the auxiliary classifier.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, images

CONFIGURATIONS = {"inception-v3": "image=299,batch=64"}
PARAMETERS = {"inception-v3": 27.16e6}  # torchvision's documentation
TRAIN = (
    "image=139,batch=16", "image=171,batch=64", "image=203,batch=32", "image=235,batch=64", "image=267,batch=128",
    "image=299,batch=32",
)  # fmt: skip
TEST = ("image=187,batch=96", "image=251,batch=64", "image=299,batch=64")
CLASSES = 1000
AUXILIARY_WEIGHT = 0.3  # of its loss, as in the first Inception

Size = int | tuple[int, int]
Branch = Sequence[tuple[int, Size] | tuple[int, Size, int]]  # channels, kernel and stride of each convolution


def build(*, image: int = 299, batch: int = 32) -> Model:
    """The model and its example inputs: images (batch, 3, image, image) and labels (batch,)."""
    with torch.device("meta"):
        return InceptionV3(), images(batch, image)


class Unit(nn.Module):
    """Convolution, batch norm, ReLU; padded unless it has a stride, or as `padded` says."""

    def __init__(self, channels: int, out: int, kernel: Size, stride: int = 1, padded: bool | None = None) -> None:
        super().__init__()
        sizes = (kernel, kernel) if isinstance(kernel, int) else kernel
        is_padded = stride == 1 if padded is None else padded
        padding = (sizes[0] // 2, sizes[1] // 2) if is_padded else (0, 0)
        self.convolution = nn.Conv2d(channels, out, sizes, stride, padding, bias=False)
        self.norm = nn.BatchNorm2d(out)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, out, height, width), halved by a stride of two."""
        return F.relu(self.norm(self.convolution(x)))


def chain(channels: int, branch: Branch) -> nn.Sequential:
    """Convolutions one after the other."""
    units = []
    for out, kernel, *stride in branch:
        units.append(Unit(channels, out, kernel, stride[0] if stride else 1))
        channels = out
    return nn.Sequential(*units)


class Block(nn.Module):
    """Branches of convolutions next to a pool: an average and a convolution, or a maximum that halves."""

    def __init__(self, channels: int, branches: Sequence[Branch], pooled: int = 0) -> None:
        super().__init__()
        self.branches = nn.ModuleList(chain(channels, branch) for branch in branches)
        self.pooled = Unit(channels, pooled, 1) if pooled else None

    def forward(self, x: Tensor) -> Tensor:
        """All branches side by side, (batch, channels, height, width)."""
        pool = F.max_pool2d(x, 3, 2) if self.pooled is None else self.pooled(F.avg_pool2d(x, 3, 1, padding=1))
        return torch.cat([*(branch(x) for branch in self.branches), pool], dim=1)


class WideBlock(nn.Module):
    """The last blocks, two of whose branches end in a 1 x 3 and a 3 x 1 convolution side by side (figure 7)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.single = Unit(channels, 320, 1)
        self.stems = nn.ModuleList([chain(channels, [(384, 1)]), chain(channels, [(448, 1), (384, 3)])])
        self.ends = nn.ModuleList(Unit(384, 384, size) for _ in self.stems for size in ((1, 3), (3, 1)))
        self.pooled = Unit(channels, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 2048, height, width)."""
        stems = [stem(x) for stem in self.stems]
        ends = [end(stems[i // 2]) for i, end in enumerate(self.ends)]
        return torch.cat([self.single(x), *ends, self.pooled(F.avg_pool2d(x, 3, 1, padding=1))], dim=1)


def small(channels: int, pooled: int) -> Block:
    """Figure 5: 35 x 35."""
    return Block(channels, [[(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)]], pooled)


def medium(inner: int) -> Block:
    """Figure 6: 17 x 17, with 7 x 7 convolutions taken apart."""
    row, column = (1, 7), (7, 1)
    double: Branch = [(inner, 1), (inner, column), (inner, row), (inner, column), (192, row)]
    return Block(768, [[(192, 1)], [(inner, 1), (inner, row), (192, column)], double], 192)


class InceptionV3(nn.Module):
    """Stem, blocks on three resolutions, a classifier, and another one halfway."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            Unit(3, 32, 3, 2), Unit(32, 32, 3, padded=False), Unit(32, 64, 3), nn.MaxPool2d(3, 2), Unit(64, 80, 1),
            Unit(80, 192, 3, padded=False), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        to_medium = Block(288, [[(384, 3, 2)], [(64, 1), (96, 3), (96, 3, 2)]])
        lower = [small(192, 32), small(256, 64), small(288, 64), to_medium]
        self.lower = nn.Sequential(*lower, medium(128), medium(160), medium(160), medium(192))
        to_large = Block(768, [[(192, 1), (320, 3, 2)], [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2)]])
        self.upper = nn.Sequential(to_large, WideBlock(1280), WideBlock(2048))
        self.classifier = nn.Linear(2048, CLASSES)
        self.auxiliary = nn.Sequential(Unit(768, 128, 1), Unit(128, 768, 5, padded=False))
        self.auxiliary_classifier = nn.Linear(768, CLASSES)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy over the batch."""
        x = self.lower(self.stem(images))
        loss = F.cross_entropy(self.classifier(self.upper(x).mean(dim=(2, 3))), labels)
        pooled = F.avg_pool2d(x, 5, 3)
        if pooled.shape[2] < 5:  # smaller images than the net was made for
            pooled = F.interpolate(pooled, (5, 5))
        aside = self.auxiliary_classifier(self.auxiliary(pooled).mean(dim=(2, 3)))
        return loss + AUXILIARY_WEIGHT * F.cross_entropy(aside, labels)
