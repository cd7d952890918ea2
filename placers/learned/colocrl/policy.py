"""ColocRlPolicy: a sequence-to-sequence LSTM gives the op groups their devices, one by one (Mirhoseini et al. 2017).

Published (section 3.2): the inputs, a tunable embedding of the op type, output sizes, and the direct inputs and outputs
as an indicator of fixed size; and the network. Ours: widths, and that the indicator covers the first `positions` of
the topological order, any further neighbours not being seen, so that one policy reads graphs of several sizes. Op
groups are the graph's units, co-located by how it was loaded; the paper's rules for that merge all of a chain.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import torch
from torch import Tensor, nn

from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.features import KINDS
from placers.learned.op_sequence import OpSequence, Sequences
from placers.learned.policy import Scores, UnitDevices
from placers.learned.recurrent import Memory, Seq2Seq, SequencePolicy
from placers.learned.settings import Settings, brief_ppo
from placers.learned.shapes import Above0, Even, Size


class ColocRlShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy is made of."""

    devices: Size = 2  # that it chooses among
    hidden: Even = 512  # of the LSTMs; this and the next three as in the authors' later work
    bound: Above0 = 5.0
    temperature: Above0 = 10.0
    type_width: Size = 20  # of the tunable embedding of an op type; ours, as the next
    positions: Size = 256  # in the sequence that are distinguished as neighbours


@dataclass(frozen=True, eq=False)
class ColocRlBatch:
    """Problems side by side."""

    sequences: Sequences
    neighbours: Tensor  # (problems, units, 2 * positions) by position: 1 at its inputs, then 1 at its outputs


class ColocRlPolicy(SequencePolicy[ColocRlBatch, UnitDevices]):
    """A distribution over placements, unit by unit in topological order."""

    kind: ClassVar[str] = "colocrl"
    shape_type: ClassVar[type[msgspec.Struct]] = ColocRlShape

    def __init__(self, shape: ColocRlShape) -> None:
        super().__init__()
        self.shape, self.devices = shape, shape.devices
        self.types = nn.Linear(len(KINDS), shape.type_width, bias=False)  # an embedding each; a unit's are averaged
        inputs = shape.type_width + 1 + 2 * shape.positions
        self.network = Seq2Seq(inputs, shape.devices, shape.hidden, shape.bound, shape.temperature)

    def stack(self, views: Sequence[OpSequence]) -> ColocRlBatch:
        """Several views as a batch."""
        sequences = Sequences.of(views)
        problems, units = sequences.mask.shape
        neighbours = torch.zeros(problems, units, 2, self.shape.positions)
        for own, view in zip(neighbours, views, strict=True):
            producer, consumer = torch.from_numpy(view.edges).T
            seen, known = producer < self.shape.positions, consumer < self.shape.positions
            own[consumer[seen], 0, producer[seen]] = 1.0
            own[producer[known], 1, consumer[known]] = 1.0
        return ColocRlBatch(sequences, neighbours.flatten(2))

    @torch.no_grad()
    def sample(self, batch: ColocRlBatch, samples: int, generator: torch.Generator, *, greedy: int = 0) -> UnitDevices:
        """As `SequencePolicy.sample`."""
        problems = len(batch.sequences.mask)
        first = (torch.arange(samples) < greedy).repeat(problems)
        drawn = self.network.draw(self._encode(batch).repeated(samples), generator, first)
        return UnitDevices(batch.sequences.by_unit(drawn.view(problems, samples, -1)))

    def actions_of(self, batch: ColocRlBatch, placements: Sequence[Ints]) -> UnitDevices:
        """The actions that are these placements, (units,) each."""
        return UnitDevices.of(placements, batch.sequences.mask.shape[1])

    def score(self, batch: ColocRlBatch, action: UnitDevices) -> Scores:
        """Log-probabilities and entropy of placements, differentiable; a decision is a unit's device."""
        chosen, mask = batch.sequences.by_position(action.devices), batch.sequences.mask
        memory = self._encode(batch).repeated(chosen.shape[1])
        table = self.network.log_probabilities(memory, chosen.flatten(0, 1)).view(*chosen.shape, -1)
        log_probability = batch.sequences.by_unit(table.gather(-1, chosen[..., None]).squeeze(-1))
        entropy = batch.sequences.by_unit(-(table.exp() * table).sum(-1).mean(1, keepdim=True))[:, 0]
        return Scores(log_probability * mask[:, None], entropy * mask, mask)

    def fine_tuning(self, problem: Problem, simulations: int) -> Settings:  # noqa: ARG002 - for all problems alike
        """Somewhat faster; rates from 5e-4 to 2e-3, samples of 8, and self-imitation were tried on Placeto's graphs."""
        return Settings(
            ppo=msgspec.structs.replace(brief_ppo(simulations), learning_rate=1e-3, final_learning_rate=2e-4)
        )

    def _encode(self, batch: ColocRlBatch) -> Memory:
        types = batch.sequences.types
        embedded = self.types(types / types.sum(-1, keepdim=True).clamp(min=1.0))
        inputs = torch.cat([embedded, batch.sequences.sizes[..., None], batch.neighbours], -1)
        return self.network.encode(inputs, batch.sequences.mask)
