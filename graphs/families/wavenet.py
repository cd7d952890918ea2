"""Audio model of dilated causal convolutions: WaveNet (van den Oord et al. 2016).

GDP's are 2 stacks of 18 layers and 4 stacks of 36; its sizes are not published: channels, length and batch are ours.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model

CONFIGURATIONS = {"wavenet-2x18": "stacks=2,layers=18,batch=8", "wavenet-4x36": "stacks=4,layers=36,batch=8"}
TRAIN = (
    "stacks=1,layers=6,length=4000,batch=4", "stacks=2,layers=8,length=8000,batch=4",
    "stacks=2,layers=12,length=4000,batch=8", "stacks=3,layers=8,length=8000,batch=8",
    "stacks=2,layers=10,length=16000,batch=8", "stacks=4,layers=10,length=4000,batch=16",
)  # fmt: skip
TEST = (
    "stacks=2,layers=9,length=8000,batch=8", "stacks=3,layers=10,length=8000,batch=12",
    "stacks=4,layers=12,length=4000,batch=8",
)  # fmt: skip
LEVELS = 256  # of the companded signal, section 2.2
LARGEST_DILATION = 9  # power of two, section 2.1


def build(*, stacks: int = 2, layers: int = 10, channels: int = 128, length: int = 8000, batch: int = 8) -> Model:
    """The model and its example input: a signal of levels, (batch, length + 1)."""
    with torch.device("meta"):
        return WaveNet(stacks, layers, channels), (torch.empty(batch, length + 1, dtype=torch.long),)


class WavenetLayer(nn.Module):
    """A dilated convolution through a gate, parallel to a shortcut, with an output to the skip path."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.filter_and_gate = nn.Conv1d(channels, 2 * channels, 2, dilation=dilation)
        self.residual = nn.Conv1d(channels, channels, 1)
        self.skip = nn.Conv1d(channels, channels, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The next layer's input and the skip output, (batch, channels, length) each."""
        filtered, gate = self.filter_and_gate(F.pad(x, (self.dilation, 0))).chunk(2, dim=1)
        y = torch.tanh(filtered) * torch.sigmoid(gate)
        return x + self.residual(y), self.skip(y)


class WaveNet(nn.Module):
    """Embedding, stacks of layers with growing dilation, and the prediction of the next level."""

    def __init__(self, stacks: int, layers: int, channels: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(LEVELS, channels)
        self.layers = nn.ModuleList(
            WavenetLayer(channels, 2 ** (i % (LARGEST_DILATION + 1))) for _ in range(stacks) for i in range(layers)
        )
        self.hidden = nn.Conv1d(channels, channels, 1)
        self.head = nn.Conv1d(channels, LEVELS, 1)

    def forward(self, signal: Tensor) -> Tensor:
        """Mean cross-entropy over batch and time."""
        x = self.embedding(signal[:, :-1]).transpose(1, 2)
        total: Tensor | None = None
        for layer in self.layers:
            x, skip = layer(x)
            total = skip if total is None else total + skip
        assert total is not None
        return F.cross_entropy(self.head(F.relu(self.hidden(F.relu(total)))), signal[:, 1:])
