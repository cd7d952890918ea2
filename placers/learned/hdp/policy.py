"""HdpPolicy: a grouper assigns ops to groups, a sequence-to-sequence LSTM places the groups (Mirhoseini et al. 2018).

Groups and devices are both drawn, so both are part of the action; the units' devices follow from them.

Published: the model, widths and number of groups (TensorFlow's grappler), and, by the paper, logits bounded at 5 after
division by 10; the code's settings are "hdp:bound=1,temperature=1,released=true". Of that code, left out are the noise
on logits in the first 750 updates, and the repetition of the last placement after 500.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import torch
from torch import Tensor, nn

from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.batch import padded
from placers.learned.features import KINDS
from placers.learned.hdp.grouper import Grouper, describe_groups, neighbours_of
from placers.learned.op_sequence import OpSequence, Sequences
from placers.learned.policy import Scores, UnitDevices
from placers.learned.recurrent import Memory, Seq2Seq, SequencePolicy
from placers.learned.settings import SELF_IMITATION, Imitation, Settings, brief_ppo
from placers.learned.shapes import Above0, Even, Size

MOST_GROUPS, GROUPS_PER_DEVICE = 256, 20


class HdpShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy is made of; the defaults are published."""

    devices: Size = 2  # that it chooses among
    hidden: Even = 512  # of the LSTMs
    grouper: Size = 64  # width of the grouper
    groups: int = 0  # 0: as many as the authors' code makes, 20 per device and at most 256
    bound: Above0 = 5.0
    temperature: Above0 = 10.0
    released: bool = False  # features as their code computes them, with two errors; see `hdp.grouper`

    @property
    def num_groups(self) -> int:
        """How many groups the grouper chooses among."""
        return self.groups if self.groups > 0 else min(MOST_GROUPS, GROUPS_PER_DEVICE * self.devices)


@dataclass(frozen=True, eq=False)
class HdpBatch:
    """Problems side by side."""

    sequences: Sequences
    neighbours: Tensor  # (problems, units, slots)


@dataclass(frozen=True, eq=False)
class HdpAction(UnitDevices):
    """What was drawn: a group for each op, by position in the sequence, and a device for each group.

    The units' devices follow from both; they are 0 where padded.
    """

    groups: Tensor  # (problems, samples, units) by position
    group_devices: Tensor  # (problems, samples, groups)


class HdpPolicy(SequencePolicy[HdpBatch, HdpAction]):
    """A distribution over groupings, and over devices of the groups."""

    kind: ClassVar[str] = "hdp"
    shape_type: ClassVar[type[msgspec.Struct]] = HdpShape

    def __init__(self, shape: HdpShape) -> None:
        super().__init__()
        self.shape, self.devices = shape, shape.devices
        self.grouper = Grouper(shape.grouper, shape.num_groups, shape.released)
        inputs = 2 * shape.num_groups + len(KINDS) + 1
        self.placer = Seq2Seq(inputs, shape.devices, shape.hidden, shape.bound, shape.temperature)

    def stack(self, views: Sequence[OpSequence]) -> HdpBatch:
        """Several views as a batch."""
        slots, _ = padded([neighbours_of(view, released=self.shape.released) for view in views])
        return HdpBatch(Sequences.of(views), slots)

    @torch.no_grad()
    def sample(self, batch: HdpBatch, samples: int, generator: torch.Generator, *, greedy: int = 0) -> HdpAction:
        """As `SequencePolicy.sample`; every sample has a grouping of its own, as in the authors' code."""
        sequences, problems = batch.sequences, len(batch.sequences.mask)
        table = self.grouper(sequences, batch.neighbours)
        drawn = torch.multinomial(table.exp().flatten(0, 1), samples, replacement=True, generator=generator)
        assigned = drawn.view(problems, -1, samples).transpose(1, 2)
        first = torch.arange(samples) < greedy
        assigned = torch.where(first[:, None], table.argmax(-1)[:, None], assigned) * sequences.mask[:, None]
        encoded = self._encode(batch, assigned)
        devices = self.placer.draw(encoded, generator, first.repeat(problems)).view(problems, samples, -1)
        of_units = sequences.by_unit(devices.gather(2, assigned)) * sequences.mask[:, None]
        return HdpAction(of_units, assigned, devices)

    @torch.no_grad()
    def actions_of(self, batch: HdpBatch, placements: Sequence[Ints]) -> HdpAction:
        """Likely actions that lead to placements, (units,) each (ours).

        A group has the device whose ops, on average, are likeliest to be in it, and an op joins the likeliest group of
        its device. A device without a group is missed: its ops are elsewhere.
        """
        ops = batch.sequences
        wanted = ops.by_position(UnitDevices.of(placements, ops.mask.shape[1]).devices)[:, 0]
        table = self.grouper(ops, batch.neighbours)
        on_device = nn.functional.one_hot(wanted, self.shape.devices) * ops.mask[..., None]
        share = on_device / on_device.sum(1, keepdim=True).clamp(min=1)
        devices = (table.exp().transpose(1, 2) @ share).argmax(-1)
        elsewhere = devices[:, None] != wanted[..., None]
        assigned = (table - 1e6 * elsewhere).argmax(-1) * ops.mask
        of_units = ops.by_unit(devices.gather(1, assigned)[:, None])[:, 0] * ops.mask
        return HdpAction(of_units[:, None], assigned[:, None], devices[:, None])

    def score(self, batch: HdpBatch, action: HdpAction) -> Scores:
        """Log-probabilities and entropy of actions, differentiable.

        Of 2 * units + groups columns the first are those of the units' devices, which are no decisions and masked: sums
        over all are rounded as they were when policies were trained with them. Those of op groups and of the groups'
        devices follow.
        """
        assigned, devices, ops = action.groups, action.group_devices, batch.sequences.mask
        table = self.grouper(batch.sequences, batch.neighbours)
        wide = table[:, None].expand(-1, assigned.shape[1], -1, -1)  # (problems, samples, units, groups)
        grouping = wide.gather(-1, assigned[..., None]).squeeze(-1) * ops[:, None]
        placing = self.placer.log_probabilities(self._encode(batch, assigned), devices.flatten(0, 1))
        placing = placing.view(*devices.shape, -1)
        chosen = placing.gather(-1, devices[..., None]).squeeze(-1)
        undecided = -(table.exp() * table).sum(-1) * ops
        spread = -(placing.exp() * placing).sum(-1).mean(1)
        return Scores(
            torch.cat([torch.zeros_like(grouping), grouping, chosen], 2),
            torch.cat([torch.zeros_like(undecided), undecided, spread], 1),
            torch.cat([torch.zeros_like(ops), ops, ops.new_ones(len(ops), self.shape.num_groups)], 1),
        )

    def fine_tuning(self, problem: Problem, simulations: int) -> Settings:  # noqa: ARG002 - for all problems alike
        """Those from which others depart, for which rates from 1e-4 to 4e-3 were tried; it imitates itself."""
        return Settings(ppo=brief_ppo(simulations), imitation=Imitation(weight=SELF_IMITATION))

    def _encode(self, batch: HdpBatch, assigned: Tensor) -> Memory:
        described = describe_groups(batch.sequences, assigned, self.shape.num_groups, released=self.shape.released)
        inputs = described.flatten(0, 1)
        return self.placer.encode(inputs, inputs.new_ones(inputs.shape[:2], dtype=torch.bool))
