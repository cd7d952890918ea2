"""Neural machine translation with attention: LSTM encoder and decoder unrolled over time, after GNMT.

Wu et al. (2016): a bidirectional first layer in the encoder, residual connections from the third layer on, additive
attention computed from the decoder's first layer and fed to all of them. GDP's GNMT has 2, 4 and 8 layers on each
side; its sizes are not published, hidden=1024 and a vocabulary of 32,000 are those of Wu et al., section 8.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, tokens
from graphs.families.rnnlm import State, gated

CONFIGURATIONS = {
    "gnmt-2": "layers=2,steps=50,hidden=1024,batch=128",
    "gnmt-4": "layers=4,steps=50,hidden=1024,batch=128",
    "gnmt-8": "layers=8,steps=85,hidden=1024,batch=128",  # over 50,000 ops, as GDP has it
    # DAPPLE counts the layers of both sides; WMT 2016 has 36,548 word pieces
    "gnmt-16": "layers=8,steps=50,hidden=1024,batch=64,vocabulary=36548",
}
PARAMETERS = {"gnmt-16": 291e6}  # DAPPLE (2021), table II
TRAIN = (
    "layers=2,steps=6,hidden=512,batch=64", "layers=2,steps=10,hidden=1024,batch=128",
    "layers=2,steps=16,hidden=1024,batch=64", "layers=3,steps=8,hidden=1024,batch=256",
    "layers=4,steps=8,hidden=1024,batch=128", "layers=4,steps=12,hidden=512,batch=256",
    "layers=6,steps=6,hidden=1024,batch=256", "layers=8,steps=6,hidden=1024,batch=128",
)  # fmt: skip
TEST = (
    "layers=2,steps=12,hidden=1024,batch=192", "layers=4,steps=10,hidden=1024,batch=192",
    "layers=6,steps=8,hidden=1024,batch=128", "layers=8,steps=8,hidden=1024,batch=192",
)  # fmt: skip


def build(*, layers: int = 2, steps: int = 10, hidden: int = 1024, batch: int = 64, vocabulary: int = 32000) -> Model:
    """The model and its example inputs: source and target sentences, each (batch, steps)."""
    with torch.device("meta"):
        return Translator(layers, hidden, vocabulary), tokens(batch, steps)


class GnmtCell(nn.Module):
    """One step of one LSTM layer, whose input may be wider than its state."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.gates = nn.Linear(inputs + hidden, 4 * hidden)

    def forward(self, x: Tensor, state: State) -> State:
        """New state from the input, (batch, inputs), and the previous state."""
        hidden, cell = state
        return gated(self.gates(torch.cat([x, hidden], dim=1)), cell)


class Encoder(nn.Module):
    """Reads the source sentence: the first layer from both ends."""

    def __init__(self, layers: int, hidden: int) -> None:
        super().__init__()
        self.forwards = GnmtCell(hidden, hidden)
        self.backwards = GnmtCell(hidden, hidden)
        self.layers = nn.ModuleList(GnmtCell(2 * hidden if i == 0 else hidden, hidden) for i in range(layers - 1))

    def forward(self, words: list[Tensor], start: Tensor) -> list[Tensor]:
        """The top layer's output at every step, (batch, hidden) each."""
        ahead = _run(self.forwards, words, start)
        back = _run(self.backwards, words[::-1], start)[::-1]
        outputs = [torch.cat(both, dim=1) for both in zip(ahead, back, strict=True)]
        if not self.layers:
            return ahead
        for i, layer in enumerate(self.layers):
            deeper = _run(layer, outputs, start)
            outputs = [new + old for new, old in zip(deeper, outputs, strict=True)] if i > 0 else deeper
        return outputs


class Decoder(nn.Module):
    """Writes the target sentence, with attention to the source at every step."""

    def __init__(self, layers: int, hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.layers = nn.ModuleList(GnmtCell(2 * hidden, hidden) for _ in range(layers))

    def forward(self, words: list[Tensor], memory: Tensor, start: Tensor) -> list[Tensor]:
        """The top layer's output at every step, from the encoder's outputs, (batch, steps, hidden)."""
        keys = self.key(memory)
        states: list[State] = [(start, start) for _ in self.layers]
        context, outputs = start, []
        for word in words:
            x, _ = states[0] = self.layers[0](torch.cat([word, context], dim=1), states[0])
            scores = self.score(torch.tanh(self.query(x).unsqueeze(1) + keys))
            context = (scores.softmax(dim=1) * memory).sum(dim=1)
            for i, layer in enumerate(self.layers[1:], start=1):
                y, _ = states[i] = layer(torch.cat([x, context], dim=1), states[i])
                x = x + y if i > 1 else y
            outputs.append(x)
        return outputs


class Translator(nn.Module):
    """Embeddings, encoder, decoder, and the prediction of the next word at every step."""

    def __init__(self, layers: int, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.source = nn.Embedding(vocabulary, hidden)
        self.target = nn.Embedding(vocabulary, hidden)
        self.encoder = Encoder(layers, hidden)
        self.decoder = Decoder(layers, hidden)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Mean cross-entropy over batch and steps."""
        steps = range(source.shape[1])
        start = self.head.weight.new_zeros(len(source), self.head.in_features)
        memory = self.encoder([self.source(source[:, step]) for step in steps], start)
        outputs = self.decoder([self.target(target[:, step]) for step in steps], torch.stack(memory, dim=1), start)
        losses = [F.cross_entropy(self.head(x), target[:, step]) for step, x in enumerate(outputs)]
        return torch.stack(losses).mean()


def _run(cell: nn.Module, inputs: list[Tensor], start: Tensor) -> list[Tensor]:
    state, outputs = (start, start), []
    for x in inputs:
        state = cell(x, state)
        outputs.append(state[0])
    return outputs
