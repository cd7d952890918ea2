"""Placeto's cifar10: 32 convolutional nets of cells sampled from the search space of ENAS, for images of 32 x 32.

Pham et al. (2018), section 2.4: a cell has two inputs and five nodes; each node adds two operations on earlier nodes,
out of identity, separable convolutions 3 x 3 and 5 x 5, and average and max pooling 3 x 3. The cells, drawn from a
seed, and the net's sizes are ours: Placeto does not publish its own. Half of the graphs are for training.
"""

import random

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, images

CONFIGURATIONS = {"cifar10": "cell=0"}
TRAIN = (
    "cell=0", "cell=1", "cell=2", "cell=3", "cell=4", "cell=5", "cell=6", "cell=7", "cell=8", "cell=9", "cell=10",
    "cell=11", "cell=12", "cell=13", "cell=14", "cell=15",
)  # fmt: skip
TEST = (
    "cell=16", "cell=17", "cell=18", "cell=19", "cell=20", "cell=21", "cell=22", "cell=23", "cell=24", "cell=25",
    "cell=26", "cell=27", "cell=28", "cell=29", "cell=30", "cell=31",
)  # fmt: skip
NODES = 5
OPERATIONS = ("identity", "separable 3", "separable 5", "average", "max")
CLASSES = 10


def build(*, cell: int = 0, layers: int = 6, width: int = 36, batch: int = 128) -> Model:
    """The model and its example inputs: images (batch, 3, 32, 32) and labels (batch,). `cell` is the seed."""
    with torch.device("meta"):
        return SampledNet(cell, layers, width), images(batch, 32)


class SeparableConvolution(nn.Module):
    """ReLU, depthwise and pointwise convolution, batch norm."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False)
        self.pointwise = nn.Conv2d(channels, channels, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        normed: Tensor = self.norm(self.pointwise(self.depthwise(F.relu(x))))
        return normed


def operation(name: str, channels: int) -> nn.Module:
    """One of OPERATIONS."""
    if name.startswith("separable"):
        return SeparableConvolution(channels, int(name[-1]))
    pools = {"average": nn.AvgPool2d(3, 1, padding=1), "max": nn.MaxPool2d(3, 1, padding=1)}
    return pools.get(name, nn.Identity())


class CifarCell(nn.Module):
    """Five nodes; those that no other reads are its output."""

    def __init__(self, plan: list[tuple[int, str]], first: int, second: int, channels: int) -> None:
        super().__init__()
        self.sources = [source for source, _ in plan]
        self.inputs = nn.ModuleList(nn.Conv2d(count, channels, 1, bias=False) for count in (first, second))
        self.operations = nn.ModuleList(operation(name, channels) for _, name in plan)
        self.ends = [node for node in range(2, 2 + NODES) if node not in self.sources]
        self.out = nn.Conv2d(len(self.ends) * channels, channels, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, before: Tensor, x: Tensor) -> Tensor:
        """(batch, channels, height, width) of the latter of its inputs."""
        nodes = [F.relu(reduce(each)) for reduce, each in zip(self.inputs, (before, x), strict=True)]
        for node in range(NODES):
            one, other = (self.operations[i](nodes[self.sources[i]]) for i in (2 * node, 2 * node + 1))
            nodes.append(one + other)
        out: Tensor = self.norm(self.out(torch.cat([nodes[end] for end in self.ends], dim=1)))
        return out


class SampledNet(nn.Module):
    """Stem, cells, halved twice, and a classifier."""

    def __init__(self, seed: int, layers: int, width: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        plan = [(draw.randrange(2 + i // 2), draw.choice(OPERATIONS)) for i in range(2 * NODES)]
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))
        self.halves = [layers // 3, 2 * layers // 3]
        counts = [width * 2 ** sum(i >= half for half in self.halves) for i in range(layers)]
        before = [width, width, *counts]
        self.cells = nn.ModuleList(CifarCell(plan, before[i], before[i + 1], counts[i]) for i in range(layers))
        self.classifier = nn.Linear(counts[-1], CLASSES)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy over the batch."""
        before = x = self.stem(images)
        for i, cell in enumerate(self.cells):
            if i in self.halves:
                before, x = F.avg_pool2d(before, 2), F.avg_pool2d(x, 2)
            before, x = x, cell(before, x)
        return F.cross_entropy(self.classifier(x.mean(dim=(2, 3))), labels)
