"""Segments: the units of each graph cut, in topological order, into pieces that attention takes one at a time.

Transformer-XL (Dai et al. 2019, section 3.2) runs a sequence segment by segment and keeps the hidden states of the last
ones, without gradient, as further keys. A layer here needs of earlier segments only what went into that same layer, and
a graph is there as a whole: so all segments of a layer are computed side by side, as rows of one batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphs.algorithms.order import ready_first


@dataclass(frozen=True)
class Segments:
    """How sequences of `units` units are cut: into rows of `length`, each with `memory` earlier rows as context."""

    units: int
    length: int
    memory: int

    @classmethod
    def of(cls, units: int, length: int, memory: int) -> Segments:
        """Segments no longer than the sequence, one if length is 0, and no more memory than there is to remember."""
        length = min(length or units, units)
        return cls(units, length, min(memory, -(-units // length) - 1))

    @property
    def count(self) -> int:
        """How many segments a sequence has; the last may be padded."""
        return -(-self.units // self.length)

    def cut(self, sequences: Tensor) -> Tensor:
        """(problems, units, ...) -> (problems * count, length, ...), the last segment padded with zeros (False)."""
        missing = self.count * self.length - self.units
        if missing:
            sequences = torch.cat(
                [sequences, sequences.new_zeros(len(sequences), missing, *sequences.shape[2:])], dim=1
            )
        return sequences.reshape(-1, self.length, *sequences.shape[2:])

    def join(self, rows: Tensor) -> Tensor:
        """The inverse of `cut`: (problems * count, length, ...) -> (problems, units, ...)."""
        return rows.reshape(-1, self.count * self.length, *rows.shape[2:])[:, : self.units]

    def before(self, rows: Tensor) -> Tensor:
        """(problems * count, length, ...) -> (problems * count, memory * length, ...), what the earlier segments hold.

        Oldest first; zeros (False) where a sequence has not begun yet.
        """
        segments = rows.reshape(-1, self.count, *rows.shape[1:])
        nothing = segments.new_zeros(len(segments), self.memory, *rows.shape[1:])
        padded = torch.cat([nothing, segments], dim=1)
        earlier = [padded[:, back : back + self.count] for back in range(self.memory)]
        return torch.cat([rows[:, :0], *(each.reshape_as(rows) for each in earlier)], dim=1)

    def visible(self, unit_mask: Tensor) -> Tensor:
        """(problems, units) bool -> (problems * count, (memory + 1) * length) the keys that each segment may attend to.

        A segment of nothing but padding sees all of it: a softmax over no key at all is NaN in some attention kernels.
        """
        exists = self.cut(unit_mask)
        keys = torch.cat([self.before(exists), exists], dim=1)
        return keys | ~keys.any(dim=1, keepdim=True)


def topological_order(edges: Tensor, unit_mask: Tensor) -> Tensor | None:
    """(problems, units) the units of each problem in topological order, or None if all are numbered in one already.

    Edges are (2, edges) indices into the flattened (problems, units). Units are numbered by their first op and captured
    graphs list ops as they run, so None is the rule; op groups, and graph files with ops in another order, need this.
    Among units that are ready the lowest number comes first; so too on a cycle, which op groups may form.
    """
    if bool((edges[0] < edges[1]).all()):
        return None
    order = ready_first(edges.T.cpu().numpy(), np.arange(unit_mask.numel()))
    width, rows = unit_mask.shape[1], []
    for problem, real in enumerate(unit_mask.sum(1).tolist()):
        place = order - problem * width
        rows.append([*place[(place >= 0) & (place < real)].tolist(), *range(real, width)])
    return torch.tensor(rows, device=edges.device)
