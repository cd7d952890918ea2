"""Seq2Seq: a recurrent network reads a sequence of op groups and writes a device for each (Mirhoseini et al. 2017).

Section 3.2: an LSTM encoder; an LSTM decoder whose input is the embedding of the device that it chose before; attention
over the encoder's states; a softmax over device indices, so that a network is for one number of devices. That the
encoder runs both ways, that attention is additive, and how logits are bounded follows the authors' code of 2018
(TensorFlow's grappler), but for its gates' only bias, a common one of the forget gates; here every gate has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from placers.learned.additive_attention import additive_scores
from placers.learned.finite import check_outputs

HIDDEN = 128  # width of untrained networks: a quarter of the authors', for speed


@dataclass(frozen=True, eq=False)
class Memory:
    """The encoder's outputs for some sequences: what the decoder attends to, and its initial state."""

    states: Tensor  # (rows, steps, hidden), as attention reads them
    mask: Tensor  # (rows, steps) bool, False where padded
    hidden: Tensor  # (rows, hidden)
    cell: Tensor  # (rows, hidden)

    def repeated(self, samples: int) -> Memory:
        """Every row `samples` times over, one after another."""
        return Memory(
            *(value.repeat_interleave(samples, 0) for value in (self.states, self.mask, self.hidden, self.cell))
        )


class Drawn(NamedTuple):
    """Devices that the decoder chose."""

    devices: Tensor  # (rows, steps); 0 where padded
    log_probability: Tensor  # (rows, steps), 0 where padded


class Seq2Seq(nn.Module):
    """The network; `hidden` must be even. Logits are `bound` * tanh(logits / temperature)."""

    def __init__(self, inputs: int, devices: int, hidden: int, bound: float, temperature: float) -> None:
        super().__init__()
        self.bound, self.temperature = bound, temperature
        self.encoder = nn.LSTM(inputs, hidden // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.LSTM(hidden, hidden, batch_first=True)
        self.before = nn.Embedding(
            devices + 1, hidden
        )  # of the device chosen before; the last one stands for the beginning
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.weigh = nn.Linear(hidden, 1, bias=False)
        self.out = nn.Linear(2 * hidden, devices, bias=False)
        for name, parameter in self.named_parameters():
            nn.init.xavier_uniform_(parameter) if parameter.dim() > 1 else nn.init.zeros_(parameter)
            if "bias_ih" in name:  # gates are in the order input, forget, cell, output: begin with open forget gates
                nn.init.ones_(parameter.detach()[len(parameter) // 4 : len(parameter) // 2])

    def encode(self, inputs: Tensor, mask: Tensor) -> Memory:
        """Read sequences (rows, steps, inputs); each has a step or more; mask (rows, steps) is False beyond it."""
        packed = pack_padded_sequence(inputs, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        states, (hidden, cell) = self.encoder(packed)
        padded, _ = pad_packed_sequence(states, batch_first=True, total_length=inputs.shape[1])
        both = (state.transpose(0, 1).flatten(1) for state in (hidden, cell))
        return Memory(self.key(padded), mask, *both)

    @torch.no_grad()
    def draw(self, memory: Memory, generator: torch.Generator, greedy: Tensor | None = None) -> Drawn:
        """Choose devices one after another; the most likely ones in rows where `greedy`, (rows,) bool, is true."""
        rows, steps = memory.mask.shape
        state = memory.hidden[None], memory.cell[None]
        latest = torch.full((rows, 1), self.before.num_embeddings - 1)
        devices, chosen = [], []
        for _ in range(steps):
            output, state = self.decoder(self.before(latest), state)
            log_probabilities = self._log_probabilities(output, memory)[:, 0]
            latest = torch.multinomial(log_probabilities.exp(), 1, generator=generator)
            if greedy is not None:
                latest = torch.where(greedy[:, None], log_probabilities.argmax(-1, keepdim=True), latest)
            devices.append(latest)
            chosen.append(log_probabilities.gather(-1, latest))
        return Drawn(torch.cat(devices, 1) * memory.mask, torch.cat(chosen, 1) * memory.mask)

    def log_probabilities(self, memory: Memory, devices: Tensor) -> Tensor:
        """(rows, steps, devices) of each device at each step, those before it being `devices` (rows, steps)."""
        begin = torch.full_like(devices[:, :1], self.before.num_embeddings - 1)
        inputs = self.before(torch.cat([begin, devices[:, :-1]], 1))
        outputs, _ = self.decoder(inputs, (memory.hidden[None], memory.cell[None]))
        return self._log_probabilities(outputs, memory)

    def _log_probabilities(self, outputs: Tensor, memory: Memory) -> Tensor:
        """(rows, steps, devices) from the decoder's outputs (rows, steps, hidden)."""
        match = additive_scores(self.query(outputs), memory.states, self.weigh.weight[0])
        attention = match.masked_fill(~memory.mask[:, None], -torch.inf).softmax(-1)
        logits = self.out(torch.cat([outputs, attention @ memory.states], -1))
        check_outputs(logits)
        return (self.bound * torch.tanh(logits / self.temperature)).log_softmax(-1)
