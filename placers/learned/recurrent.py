"""Seq2Seq: a recurrent network reads a sequence of op groups and writes a device for each (Mirhoseini et al. 2017).

Section 3.2: an LSTM encoder; an LSTM decoder whose input is the embedding of the device that it chose before; attention
over the encoder's states; a softmax over device indices, so that a network is for one number of devices. That the
encoder runs both ways, that attention is additive, and how logits are bounded follows the authors' code of 2018
(TensorFlow's grappler), but for its gates' only bias, a common one of the forget gates; here every gate has its own.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.additive_attention import additive_scores
from placers.learned.finite import check_outputs
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.op_sequence import OpSequence
from placers.learned.policy import A, Batch, Policy
from placers.learned.shapes import check_devices

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


class Seq2Seq(nn.Module):
    """The network; `hidden` must be even. Logits are `bound` * tanh(logits / temperature)."""

    def __init__(self, inputs: int, devices: int, hidden: int, bound: float, temperature: float) -> None:
        super().__init__()
        self.bound, self.temperature = bound, temperature
        self.encoder = nn.LSTM(inputs, hidden // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.LSTM(hidden, hidden, batch_first=True)
        self.before = nn.Embedding(devices + 1, hidden)  # of the device chosen before; the last one: none yet
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
    def draw(self, memory: Memory, generator: torch.Generator, greedy: Tensor) -> Tensor:
        """(rows, steps) devices, chosen one after another, the most likely ones in rows where `greedy`, (rows,) bool.

        They are 0 where padded.
        """
        rows, steps = memory.mask.shape
        state = memory.hidden[None], memory.cell[None]
        latest = torch.full((rows, 1), self.before.num_embeddings - 1)
        devices = []
        for _ in range(steps):
            output, state = self.decoder(self.before(latest), state)
            log_probabilities = self._log_probabilities(output, memory)[:, 0]
            drawn = torch.multinomial(log_probabilities.exp(), 1, generator=generator)
            latest = torch.where(greedy[:, None], log_probabilities.argmax(-1, keepdim=True), drawn)
            devices.append(latest)
        return torch.cat(devices, 1) * memory.mask

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


class SequencePolicy(Policy[OpSequence, Batch, A]):
    """What ColocRL's and HDP's policies have in common: they read op sequences, for one number of devices."""

    any_cluster: ClassVar[bool] = False
    devices: int  # that it chooses among

    def view(self, problem: Problem) -> OpSequence:
        """What the policy sees of a problem. Raises InputError if it is for another number of devices."""
        check_devices(self.kind, self.devices, problem.cluster)
        return OpSequence.of(problem.graph)

    def act(self, batch: Batch, samples: int, generator: torch.Generator) -> A:
        """Draw `samples` actions for each problem of a batch."""
        return self.sample(batch, samples, generator)

    @abstractmethod
    def sample(self, batch: Batch, samples: int, generator: torch.Generator, *, greedy: int = 0) -> A:
        """Draw actions; the first `greedy` of each problem are the most likely."""

    def candidates(self, problem: Problem, count: int, seed: int) -> Ints:
        """(count, units) placements: the most likely choices, then samples."""
        batch, generator = self.stack([self.view(problem)]), torch.Generator().manual_seed(seed)
        placements: Ints = self.sample(batch, count, generator, greedy=1).devices[0].numpy()
        return placements


def recurrent_placer(
    policy: type[SequencePolicy[Batch, A]],
    *,
    checkpoint: str = "",
    samples: int = 0,
    hidden: int = HIDDEN,
    untrained: bool = False,
    seconds: float = math.inf,
) -> LearnedPlacer:
    """A placer with the policy in a checkpoint folder, for one number of devices; an untrained one only if asked for.

    `hidden` is the width of an untrained one.
    """
    network, named = f"{policy.kind}:hidden={hidden}", hidden if hidden != HIDDEN else 0
    return LearnedPlacer.of(
        policy, network, checkpoint=checkpoint, samples=samples, untrained=untrained, hidden=named, seconds=seconds
    )
