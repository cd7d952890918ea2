"""Synthetic graphs: layers of random fully connected nodes, each reading a few of the layer before.

Random in shape and size, for what real families do not show; the recipe is ours.
"""

import random

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model

CONFIGURATIONS = {"layered": "depth=12,breadth=6"}
TRAIN = (
    "seed=0,depth=8,breadth=4", "seed=1,depth=12,breadth=4", "seed=2,depth=8,breadth=8", "seed=3,depth=16,breadth=4",
    "seed=4,depth=12,breadth=8", "seed=5,depth=20,breadth=3",
)  # fmt: skip
TEST = ("seed=6,depth=10,breadth=6", "seed=7,depth=16,breadth=6", "seed=8,depth=20,breadth=5")
WIDTHS = (256, 512, 1024, 2048)
READS = 3  # of earlier nodes, at most


def build(*, seed: int = 0, depth: int = 10, breadth: int = 4, batch: int = 512) -> Model:
    """The model and its example inputs: vectors, (batch, 1024), and labels (batch,)."""
    with torch.device("meta"):
        inputs = torch.empty(batch, 1024), torch.empty(batch, dtype=torch.long)
        return LayeredNet(seed, depth, breadth), inputs


class LayeredNode(nn.Module):
    """A linear map of what it reads, side by side, and a ReLU."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, width)

    def forward(self, read: list[Tensor]) -> Tensor:
        """(batch, width)."""
        return F.relu(self.linear(torch.cat(read, dim=1)))


class LayeredNet(nn.Module):
    """Layers of nodes, and a classifier of those that no other reads."""

    def __init__(self, seed: int, depth: int, breadth: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        widths = [1024]
        previous = [0]
        self.reads: list[list[int]] = []
        nodes = []
        for _ in range(depth):
            layer = []
            for _ in range(draw.randint(max(1, breadth // 2), breadth)):
                read = sorted(draw.sample(previous, min(len(previous), draw.randint(1, READS))))
                width = draw.choice(WIDTHS)
                nodes.append(LayeredNode(sum(widths[i] for i in read), width))
                self.reads.append(read)
                layer.append(len(widths))
                widths.append(width)
            previous = layer
        self.nodes = nn.ModuleList(nodes)
        used = {i for read in self.reads for i in read}
        self.ends = [i for i in range(1, len(widths)) if i not in used]
        self.classifier = nn.Linear(sum(widths[i] for i in self.ends), 1000)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy over the batch."""
        outputs = [x]
        for node, read in zip(self.nodes, self.reads, strict=True):
            outputs.append(node([outputs[i] for i in read]))
        return F.cross_entropy(self.classifier(torch.cat([outputs[i] for i in self.ends], dim=1)), labels)
