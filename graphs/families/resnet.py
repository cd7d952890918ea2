"""Residual image classifier: ResNet (He et al. 2016), its wide form, and SE-ResNeXt.

`widen` multiplies the channels, as WResNet-152 of Tofu (Wang et al. 2019) does; `groups` splits the 3 x 3 convolutions
(Xie et al. 2017) and `squeeze` adds squeeze-and-excitation blocks (Hu et al. 2018).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, images
from graphs.foundation.errors import InputError

CONFIGURATIONS = {
    "resnet-50": "layers=50,image=224,batch=128",
    "resnet-152": "layers=152,image=224,batch=64",
    "wresnet-152-4": "layers=152,widen=4,image=224,batch=8",
    "wresnet-152-10": "layers=152,widen=10,image=224,batch=8",
    "se-resnext-50": "layers=50,groups=32,squeeze=16,image=224,batch=64",
    "se-resnext-101": "layers=101,groups=32,squeeze=16,image=224,batch=32",
}
PARAMETERS = {  # the documentation of torchvision, and of timm
    "resnet-50": 25.56e6, "resnet-152": 60.19e6, "se-resnext-50": 27.56e6, "se-resnext-101": 48.96e6,
}  # fmt: skip
TRAIN = (
    "layers=26,image=64,batch=32", "layers=26,image=224,batch=64", "layers=38,image=160,batch=64",
    "layers=50,image=160,batch=64", "layers=50,groups=32,squeeze=16,image=128,batch=64",
    "layers=101,image=128,batch=32", "layers=50,widen=2,image=160,batch=32",
)  # fmt: skip
TEST = (
    "layers=38,image=224,batch=96", "layers=50,image=192,batch=96",
    "layers=101,groups=32,squeeze=16,image=160,batch=32", "layers=152,image=160,batch=32",
)  # fmt: skip
PLANS = {26: (2, 2, 2, 2), 38: (3, 3, 3, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}  # blocks a stage
CLASSES = 1000


def build(
    *, layers: int = 50, widen: int = 1, groups: int = 1, squeeze: int = 0, image: int = 224, batch: int = 64
) -> Model:
    """The model and its example inputs: images (batch, 3, image, image) and labels (batch,).

    `squeeze` is the factor by which SE blocks shrink the channels; 0 leaves them out.
    """
    if layers not in PLANS:
        raise InputError(f"resnet has no {layers} layers; there are: {', '.join(map(str, PLANS))}")
    with torch.device("meta"):
        return ResNet(PLANS[layers], widen, groups, squeeze), images(batch, image)


class Excitation(nn.Module):
    """Scales each channel by what a small net makes of the channels' means."""

    def __init__(self, channels: int, squeeze: int) -> None:
        super().__init__()
        self.shrink = nn.Conv2d(channels, channels // squeeze, 1)
        self.grow = nn.Conv2d(channels // squeeze, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return x * torch.sigmoid(self.grow(F.relu(self.shrink(x.mean(dim=(2, 3), keepdim=True)))))


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions, parallel to a shortcut."""

    def __init__(self, channels: int, inner: int, out: int, stride: int, groups: int, squeeze: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, inner, 1, bias=False)
        self.reduce_norm = nn.BatchNorm2d(inner)
        self.mix = nn.Conv2d(inner, inner, 3, stride, padding=1, groups=groups, bias=False)
        self.mix_norm = nn.BatchNorm2d(inner)
        self.expand = nn.Conv2d(inner, out, 1, bias=False)
        self.expand_norm = nn.BatchNorm2d(out)
        self.excite = Excitation(out, squeeze) if squeeze else nn.Identity()
        shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.shortcut = shortcut if stride > 1 or channels != out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(batch, out, height / stride, width / stride)."""
        y = F.relu(self.reduce_norm(self.reduce(x)))
        y = F.relu(self.mix_norm(self.mix(y)))
        y = self.excite(self.expand_norm(self.expand(y)))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """Stem, four stages of bottlenecks, and a classifier."""

    def __init__(self, plan: tuple[int, ...], widen: int, groups: int, squeeze: int) -> None:
        super().__init__()
        channels = 64 * widen
        self.stem = nn.Conv2d(3, channels, 7, 2, padding=3, bias=False)
        self.stem_norm = nn.BatchNorm2d(channels)
        blocks = []
        for stage, count in enumerate(plan):
            out = 256 * widen * 2**stage
            inner = out // 2 if groups > 1 else out // 4
            for i in range(count):
                stride = 2 if i == 0 and stage > 0 else 1
                blocks.append(Bottleneck(channels, inner, out, stride, groups, squeeze))
                channels = out
        self.blocks = nn.ModuleList(blocks)
        self.classifier = nn.Linear(channels, CLASSES)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy over the batch."""
        x = F.max_pool2d(F.relu(self.stem_norm(self.stem(images))), 3, 2, padding=1)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.classifier(x.mean(dim=(2, 3))), labels)
