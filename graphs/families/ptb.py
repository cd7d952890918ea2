"""Placeto's ptb: 32 recurrent language models of cells sampled from the search space of ENAS, unrolled over time.

Pham et al. (2018), section 2.1: a cell has twelve nodes; each is a gated step from an earlier node with an activation
out of tanh, ReLU, identity and sigmoid, and those that no other reads are averaged. The cells, drawn from a seed, and
the net's sizes are ours: Placeto does not publish its own. Half of the graphs are for training.
"""

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, tokens

CONFIGURATIONS = {"ptb": "cell=0"}
TRAIN = (
    "cell=0", "cell=1", "cell=2", "cell=3", "cell=4", "cell=5", "cell=6", "cell=7", "cell=8", "cell=9", "cell=10",
    "cell=11", "cell=12", "cell=13", "cell=14", "cell=15",
)  # fmt: skip
TEST = (
    "cell=16", "cell=17", "cell=18", "cell=19", "cell=20", "cell=21", "cell=22", "cell=23", "cell=24", "cell=25",
    "cell=26", "cell=27", "cell=28", "cell=29", "cell=30", "cell=31",
)  # fmt: skip
NODES = 12
ACTIVATIONS: tuple[Callable[[Tensor], Tensor], ...] = (torch.tanh, F.relu, lambda x: x, torch.sigmoid)


def build(*, cell: int = 0, steps: int = 12, hidden: int = 1000, batch: int = 64, vocabulary: int = 10000) -> Model:
    """The model and its example inputs: tokens and targets, each (batch, steps). `cell` is the seed."""
    with torch.device("meta"):
        return SampledLanguageModel(cell, hidden, vocabulary), tokens(batch, steps)


class PtbCell(nn.Module):
    """One step of the sampled recurrence."""

    def __init__(self, seed: int, hidden: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        self.sources = [draw.randrange(node) for node in range(1, NODES)]
        self.activations = [draw.choice(ACTIVATIONS) for _ in range(NODES)]
        self.first = nn.Linear(2 * hidden, 2 * hidden, bias=False)
        self.nodes = nn.ModuleList(nn.Linear(hidden, 2 * hidden, bias=False) for _ in self.sources)
        self.ends = [node for node in range(NODES) if node not in self.sources]

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        """New state, (batch, hidden), from the input and the previous state."""
        gate, candidate = self.first(torch.cat([x, state], dim=1)).chunk(2, dim=1)
        outputs = [self._gated(0, gate, candidate, state)]
        for node, (source, linear) in enumerate(zip(self.sources, self.nodes, strict=True), start=1):
            gate, candidate = linear(outputs[source]).chunk(2, dim=1)
            outputs.append(self._gated(node, gate, candidate, outputs[source]))
        return torch.stack([outputs[end] for end in self.ends]).mean(dim=0)

    def _gated(self, node: int, gate: Tensor, candidate: Tensor, old: Tensor) -> Tensor:
        return old + torch.sigmoid(gate) * (self.activations[node](candidate) - old)


class SampledLanguageModel(nn.Module):
    """Embedding, one cell, and the prediction of the next token at every step."""

    def __init__(self, seed: int, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.cells = nn.ModuleList([PtbCell(seed, hidden)])
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over batch and steps."""
        state = self.head.weight.new_zeros(len(tokens), self.head.in_features)
        losses = []
        for step in range(tokens.shape[1]):
            state = self.cells[0](self.embedding(tokens[:, step]), state)
            losses.append(F.cross_entropy(self.head(state), targets[:, step]))
        return torch.stack(losses).mean()
