"""HDP's op groups: what the grouper sees of an op, and what the placer sees of a group (Mirhoseini et al. 2018).

The features are those of the authors' code (TensorFlow's grappler): an op's type, output sizes and up to twenty numbers
about its neighbours, who they are and on which side; and a group's connections with every group, its op types and
output sizes, divided by the largest of them plus one. Ops are units here, and sizes are as in `op_sequence`.

That code reads numbers as they are, has no nonlinearity, and two errors: an op's list of neighbours is emptied when
another predecessor is found, and output sizes are added to the counts of the first op types. `released` repeats all
that. Otherwise (ours) neighbours are shares of the sequence, since positions in the hundreds saturate the softmax
before anything is learned, types are shares of the unit's ops, and the grouper has a ReLU.
"""

import torch
from torch import Tensor, nn

from placers.learned.features import KINDS
from placers.learned.finite import check_outputs
from placers.learned.op_sequence import OpSequence, Sequences

SLOTS = 20  # numbers about neighbours, two for each: its position, and 1 for a consumer or -1 for a producer


class Grouper(nn.Module):
    """A feed-forward network that assigns every op to a group, softly."""

    def __init__(self, hidden: int, groups: int, released: bool) -> None:
        super().__init__()
        self.released = released
        self.first = nn.Linear((1 if released else len(KINDS)) + 1 + SLOTS, hidden, bias=False)
        self.second = nn.Linear(hidden, groups, bias=False)
        for layer in (self.first, self.second):
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, ops: Sequences, neighbours: Tensor) -> Tensor:
        """(problems, units, groups) log-probabilities; `neighbours` is (problems, units, SLOTS)."""
        if self.released:
            types = ops.types.argmax(-1, keepdim=True).float()
        else:
            types = ops.types / ops.types.sum(-1, keepdim=True).clamp(min=1.0)
        hidden = self.first(torch.cat([types, ops.sizes[..., None], neighbours], -1))
        logits: Tensor = self.second(hidden if self.released else torch.relu(hidden))
        check_outputs(logits)
        return logits.log_softmax(-1)


def neighbours_of(sequence: OpSequence, *, released: bool) -> Tensor:
    """(units, SLOTS) the neighbours of every position: producers and then consumers, zeros if there are fewer.

    In the released code, of the producers only the last.
    """
    units = len(sequence.order)
    lists: list[list[float]] = [[] for _ in range(units)]
    scale = 1 if released else units
    for producer, consumer in sequence.edges.tolist():  # sorted: an op's producers come before its consumers
        lists[producer] += [consumer / scale, 1.0]
        if released:
            lists[consumer] = []
        lists[consumer] += [producer / scale, -1.0]
    return torch.tensor([(numbers + [0.0] * SLOTS)[:SLOTS] for numbers in lists])


def describe_groups(ops: Sequences, assigned: Tensor, groups: int, *, released: bool) -> Tensor:
    """(problems, samples, groups, 2 * groups + types + 1) from the group of each op, (problems, samples, units)."""
    problems, samples, _ = assigned.shape
    source, target = (assigned.gather(2, _spread(ops.edges[..., end], samples)) for end in (0, 1))
    joined = assigned.new_zeros(problems, samples, groups * groups, dtype=torch.float32)
    joined.scatter_add_(2, source * groups + target, _spread(ops.connections, samples))
    joined = joined.view(problems, samples, groups, groups)
    own = torch.cat([ops.types, ops.sizes[..., None]], -1)
    if released:
        own = torch.cat([ops.types, torch.zeros_like(ops.sizes[..., None])], -1)
        own[..., 0] += ops.sizes
    summed = own.new_zeros(problems, samples, groups, own.shape[-1])
    summed.scatter_add_(2, assigned[..., None].expand(-1, -1, -1, own.shape[-1]), _spread(own, samples))
    described = torch.cat([joined, joined.transpose(2, 3), summed], -1)
    return described / (described.amax(-1, keepdim=True) + 1.0)


def _spread(values: Tensor, samples: int) -> Tensor:
    """(problems, ...) -> (problems, samples, ...), the same for all samples."""
    return values[:, None].expand(-1, samples, *values.shape[1:])
