"""Convolutional image classifier of evolved cells: AmoebaNet-D (Real et al. 2019), as in GPipe (Huang et al. 2019).

`layers` is the number of normal cells in all and `filters` the width that GPipe gives with it: AmoebaNet-D (18, 208).
The cells are those of TPU's and torchgpipe's releases. GDP's AmoebaNet has no published size; the smallest is ours.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, check_multiple, images

CONFIGURATIONS = {
    "amoebanet": "layers=18,filters=208,batch=64",
    "amoebanet-18-416": "layers=18,filters=416,batch=32",
    "amoebanet-36-544": "layers=36,filters=544,batch=1",
}
PARAMETERS = {"amoebanet": 82e6, "amoebanet-18-416": 318e6, "amoebanet-36-544": 1.05e9}  # GPipe, table 1
TRAIN = (
    "layers=3,filters=64,image=64,batch=16", "layers=3,filters=128,image=224,batch=32",
    "layers=6,filters=96,image=160,batch=32", "layers=6,filters=160,image=224,batch=32",
    "layers=9,filters=128,image=192,batch=32", "layers=12,filters=96,image=224,batch=32",
)  # fmt: skip
TEST = (
    "layers=6,filters=128,image=192,batch=48", "layers=9,filters=160,image=224,batch=32",
    "layers=12,filters=128,image=160,batch=64",
)  # fmt: skip
# Pairs of operations, each on an earlier state: 0 and 1 are the cell's inputs, state 2 + i the sum of pair i.
NORMAL = (
    (1, "conv 1"), (1, "max"), (1, "none"), (0, "conv 7"), (0, "conv 1"),
    (0, "conv 7"), (2, "max"), (2, "none"), (1, "average"), (5, "conv 1"),
)  # fmt: skip
NORMAL_OUT = (0, 3, 4, 6)
REDUCTION = (
    (0, "max 2"), (0, "max"), (2, "none"), (1, "conv 3"), (2, "conv 7"),
    (2, "max"), (3, "none"), (1, "max 2"), (2, "average"), (3, "conv 1"),
)  # fmt: skip
REDUCTION_OUT = (4, 5, 6)
CLASSES = 1000
STAGES = 3


def build(*, layers: int = 18, filters: int = 208, image: int = 224, batch: int = 32) -> Model:
    """The model and its example inputs: images (batch, 3, image, image) and labels (batch,)."""
    check_multiple("amoebanet", "layers", layers, of=STAGES, which="the stages")
    check_multiple("amoebanet", "filters", filters, of=8, which="the bottlenecks' factors")
    with torch.device("meta"):
        return AmoebaNet(layers, filters), images(batch, image)


def unit(channels: int, out: int, kernel: int | tuple[int, int] = 1, stride: int | tuple[int, int] = 1) -> nn.Module:
    """ReLU, convolution, batch norm."""
    padding = (kernel // 2, kernel // 2) if isinstance(kernel, int) else (kernel[0] // 2, kernel[1] // 2)
    return nn.Sequential(
        nn.ReLU(), nn.Conv2d(channels, out, kernel, stride, padding=padding, bias=False), nn.BatchNorm2d(out)
    )


class HalveTwice(nn.Module):
    """Halves height and width with two 1 x 1 convolutions, the second on an image moved by a pixel."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.here = nn.Conv2d(channels, out // 2, 1, 2, bias=False)
        self.moved = nn.Conv2d(channels, out - out // 2, 1, 2, bias=False)
        self.norm = nn.BatchNorm2d(out)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, out, height / 2, width / 2)."""
        x = F.relu(x)
        moved = F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        normed: Tensor = self.norm(torch.cat([self.here(x), self.moved(moved)], dim=1))
        return normed


def operation(name: str, channels: int, stride: int) -> nn.Module:
    """An operation of a cell, by name."""
    inner = channels // 4
    if name == "none":
        return nn.Identity() if stride == 1 else HalveTwice(channels, channels)
    if name == "conv 1":
        return unit(channels, channels, 1, stride)
    if name == "conv 3":
        return nn.Sequential(unit(channels, inner), unit(inner, inner, 3, stride), unit(inner, channels))
    if name == "conv 7":
        across, down = unit(inner, inner, (1, 7), (1, stride)), unit(inner, inner, (7, 1), (stride, 1))
        return nn.Sequential(unit(channels, inner), across, down, unit(inner, channels))
    if name == "average":
        return nn.AvgPool2d(3, stride, padding=1, count_include_pad=False)
    return nn.MaxPool2d(2, stride) if name == "max 2" else nn.MaxPool2d(3, stride, padding=1)


class AmoebaCell(nn.Module):
    """Five sums of pairs of operations; some of the states, side by side, are its output."""

    def __init__(self, before: int, last: int, channels: int, reduces: bool, before_is_larger: bool) -> None:
        super().__init__()
        plan = REDUCTION if reduces else NORMAL
        self.out: tuple[int, ...] = REDUCTION_OUT if reduces else NORMAL_OUT
        self.sources = [source for source, _ in plan]
        self.first = unit(last, channels)
        self.second = HalveTwice(before, channels) if before_is_larger else unit(before, channels)
        self.operations = nn.ModuleList(
            operation(name, channels, 2 if reduces and source < 2 else 1) for source, name in plan
        )

    def forward(self, before: Tensor, last: Tensor) -> Tensor:
        """All states of the output, (batch, states x channels, height, width)."""
        states = [self.first(last), self.second(before)]
        for i in range(0, len(self.sources), 2):
            one, other = (self.operations[j](states[self.sources[j]]) for j in (i, i + 1))
            states.append(one + other)
        return torch.cat([states[i] for i in self.out], dim=1)


class AmoebaNet(nn.Module):
    """Stem, three stages of normal cells with reductions between, and a classifier."""

    def __init__(self, layers: int, filters: int) -> None:
        super().__init__()
        channels = filters // 4
        self.stem = nn.Conv2d(3, channels, 3, 2, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(channels)
        stage = [False] * (layers // STAGES)
        cells, before, last, reduced = [], channels, channels, False
        for reduces in (True, True, *stage, True, *stage, True, *stage):
            channels *= 2 if reduces else 1
            cells.append(AmoebaCell(before, last, channels, reduces, reduced))
            before, last = last, channels * len(REDUCTION_OUT if reduces else NORMAL_OUT)
            reduced = reduces
        self.cells = nn.ModuleList(cells)
        self.classifier = nn.Linear(last, CLASSES)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy over the batch."""
        before = last = self.stem_norm(self.stem(images))
        for cell in self.cells:
            before, last = last, cell(before, last)
        return F.cross_entropy(self.classifier(last.mean(dim=(2, 3))), labels)
