"""Recurrent language model: layers of LSTM cells, unrolled over time steps.

The large LSTM language model of Zaremba, Sutskever & Vinyals (2014), section 4.1, is layers=2, steps=35, hidden=1500,
batch=20, vocabulary=10000; GDP's RNNLM has 2, 4 and 8 layers, of sizes that the paper does not give.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, tokens

CONFIGURATIONS = {
    "rnnlm-2": "layers=2,steps=35,hidden=2048,batch=64",
    "rnnlm-4": "layers=4,steps=35,hidden=2048,batch=64",
    "rnnlm-8": "layers=8,steps=35,hidden=2048,batch=64",
    "zaremba-large": "layers=2,steps=35,hidden=1500,batch=20",
    "rnn-10": "layers=10,steps=20,hidden=8192,batch=512",  # Tofu (Wang et al. 2019), section 7.1
}
PARAMETERS = {"zaremba-large": 66e6}  # the paper
TRAIN = (
    "layers=2,steps=16,hidden=1024,batch=64", "layers=2,steps=24,hidden=2048,batch=128",
    "layers=3,steps=16,hidden=1536,batch=128", "layers=4,steps=12,hidden=2048,batch=64",
    "layers=4,steps=20,hidden=1024,batch=256", "layers=4,steps=16,hidden=4096,batch=256",
    "layers=7,steps=10,hidden=4096,batch=128", "layers=8,steps=8,hidden=4096,batch=192",
    "layers=2,steps=32,hidden=1536,batch=256", "layers=3,steps=12,hidden=3072,batch=256",
    "layers=3,steps=28,hidden=1024,batch=128", "layers=4,steps=24,hidden=2560,batch=128",
    "layers=7,steps=16,hidden=2048,batch=256", "layers=8,steps=12,hidden=3072,batch=128",
    "layers=9,steps=9,hidden=4096,batch=96", "layers=12,steps=8,hidden=2048,batch=128",
)  # fmt: skip
TEST = (
    "layers=3,steps=20,hidden=2048,batch=64", "layers=5,steps=14,hidden=2560,batch=256",
    "layers=6,steps=16,hidden=3072,batch=384", "layers=10,steps=10,hidden=4096,batch=128",
)  # fmt: skip

State = tuple[Tensor, Tensor]  # hidden state and cell, each (batch, hidden)


def build(*, layers: int = 2, steps: int = 20, hidden: int = 1024, batch: int = 64, vocabulary: int = 10000) -> Model:
    """The model and its example inputs: tokens and targets, each (batch, steps)."""
    with torch.device("meta"):
        return RecurrentLanguageModel(layers, hidden, vocabulary), tokens(batch, steps)


class LSTMCell(nn.Module):
    """One step of one layer: Zaremba et al. (2014), section 3, with the four gates in one product per operand."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.input_to_gates = nn.Linear(hidden, 4 * hidden)
        self.hidden_to_gates = nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, x: Tensor, state: State) -> State:
        """New state from the input, (batch, hidden), and the previous state."""
        hidden, cell = state
        return gated(self.input_to_gates(x) + self.hidden_to_gates(hidden), cell)


def gated(gates: Tensor, cell: Tensor) -> State:
    """The new state of an LSTM from its four gates, (batch, 4 hidden), and the previous cell."""
    enter, forget, leave, candidate = gates.chunk(4, dim=1)  # input, forget and output gate, and the new content
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
    return torch.sigmoid(leave) * torch.tanh(cell), cell


class RecurrentLanguageModel(nn.Module):
    """Embedding, layers of cells, and the prediction of the next token at every step."""

    def __init__(self, layers: int, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList(LSTMCell(hidden) for _ in range(layers))
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over batch and steps."""
        start = self.head.weight.new_zeros(len(tokens), self.head.in_features)
        states: list[State] = [(start, start) for _ in self.layers]
        losses = []
        for step in range(tokens.shape[1]):
            x = self.embedding(tokens[:, step])
            for i, layer in enumerate(self.layers):
                x, _ = states[i] = layer(x, states[i])
            losses.append(F.cross_entropy(self.head(x), targets[:, step]))
        return torch.stack(losses).mean()
