"""Convolutional image classifier of cells found by search: NASNet-A (Zoph et al. 2018), figure 4 and appendix A.

NASNet-A (6 @ 4032) has repeat=6 cells per stage and 4032 filters before the classifier, 24 times `filters`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, check_multiple, images
from graphs.families.amoebanet import HalveTwice, unit

CONFIGURATIONS = {"nasnet": "repeat=6,filters=168,image=331,batch=16", "nasnet-mobile": "repeat=4,filters=44"}
PARAMETERS = {"nasnet": 88.9e6, "nasnet-mobile": 5.3e6}  # table 2 and table 3
TRAIN = (
    "repeat=1,filters=24,image=96,batch=16", "repeat=2,filters=44,image=160,batch=32",
    "repeat=2,filters=64,image=192,batch=32", "repeat=3,filters=44,image=224,batch=32",
    "repeat=4,filters=44,image=160,batch=48", "repeat=3,filters=96,image=160,batch=16",
)  # fmt: skip
TEST = (
    "repeat=2,filters=44,image=224,batch=48", "repeat=3,filters=64,image=192,batch=32",
    "repeat=5,filters=44,image=192,batch=32",
)  # fmt: skip
CLASSES = 1000


def build(*, repeat: int = 4, filters: int = 44, image: int = 224, batch: int = 32) -> Model:
    """The model and its example inputs: images (batch, 3, image, image) and labels (batch,)."""
    check_multiple("nasnet", "filters", filters, of=4, which="the stem's factor")
    with torch.device("meta"):
        return NasNet(repeat, filters), images(batch, image)


class TwiceSeparable(nn.Module):
    """Twice: ReLU, depthwise and pointwise convolution, batch norm; the first with a stride."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.layers = nn.Sequential(*self._once(channels, out, kernel, stride), *self._once(out, out, kernel, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, out, height / stride, width / stride)."""
        y: Tensor = self.layers(x)
        return y

    @staticmethod
    def _once(channels: int, out: int, kernel: int, stride: int) -> list[nn.Module]:
        depthwise = nn.Conv2d(channels, channels, kernel, stride, padding=kernel // 2, groups=channels, bias=False)
        return [nn.ReLU(), depthwise, nn.Conv2d(channels, out, 1, bias=False), nn.BatchNorm2d(out)]


class NasCell(nn.Module):
    """Keeps height and width, or halves them."""

    def __init__(self, before: int, last: int, channels: int, reduces: bool, before_is_larger: bool) -> None:
        super().__init__()
        self.adjust = HalveTwice(before, channels) if before_is_larger else unit(before, channels)
        self.squeeze = unit(last, channels)
        sizes, stride = ((7, 5, 7, 5), 2) if reduces else ((3, 3, 5, 5, 3), 1)
        parts = {
            key: TwiceSeparable(channels, channels, size, stride) for key, size in zip("abcde", sizes, strict=False)
        }
        self.separable = nn.ModuleDict(parts)
        self.last = TwiceSeparable(channels, channels, 3) if reduces else None

    def forward(self, before: Tensor, last: Tensor) -> Tensor:
        """(batch, 6 channels, height, width); of a reduction, (batch, 4 channels, height / 2, width / 2)."""
        p, x = self.adjust(before), self.squeeze(last)
        if self.last is not None:
            first = self.separable["a"](p) + self.separable["b"](x)
            second = _largest(x) + self.separable["c"](p)
            third = _average(x, 2) + self.separable["d"](p)
            return torch.cat([second, third, _average(first) + second, _largest(x) + self.last(first)], dim=1)
        sums = (
            self.separable["a"](x) + x,
            self.separable["b"](p) + self.separable["c"](x),
            _average(x) + p,
            _average(p) + _average(p),
            self.separable["d"](p) + self.separable["e"](p),
        )
        return torch.cat([p, *sums], dim=1)


class NasNet(nn.Module):
    """Stem with two reductions, three stages of normal cells with reductions between, and a classifier."""

    def __init__(self, repeat: int, filters: int) -> None:
        super().__init__()
        stem = 96 if filters > 100 else 32
        self.stem = nn.Conv2d(3, stem, 3, 2, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(stem)
        plan = [(True, filters // 4), (True, filters // 2)]
        for stage in range(3):
            plan += [(True, filters * 2**stage)] if stage else []
            plan += [(False, filters * 2**stage)] * repeat
        cells: list[nn.Module] = []
        before, last, reduced = stem, stem, False
        for reduces, channels in plan:
            cells.append(NasCell(before, last, channels, reduces, reduced))
            before, last, reduced = last, (4 if reduces else 6) * channels, reduces
        self.cells = nn.ModuleList(cells)
        self.classifier = nn.Linear(last, CLASSES)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy over the batch."""
        before = last = self.stem_norm(self.stem(images))
        for cell in self.cells:
            before, last = last, cell(before, last)
        return F.cross_entropy(self.classifier(F.relu(last).mean(dim=(2, 3))), labels)


def _average(x: Tensor, stride: int = 1) -> Tensor:
    return F.avg_pool2d(x, 3, stride, padding=1, count_include_pad=False)


def _largest(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, 2, padding=1)
