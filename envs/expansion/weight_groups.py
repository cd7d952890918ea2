"""Weight groups: which weights replicas that hold them in parts gather, and scatter the gradients of, together.

A group is a block of layers in a stage, as PyTorch's FullyShardedDataParallel wraps the blocks of a model; a further
one of each stage is of what is outside of blocks, or read by several: embedding and head.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.expansion.layout import Layout
from graphs.algorithms.pairs import distinct_pairs, equal_pairs
from graphs.op_graph import Bools, Floats, Ints, Phase
from graphs.op_groups.layer_names import named_blocks


@dataclass(frozen=True, eq=False)
class WeightGroups:
    """The groups of a layout, numbered from 0, stage by stage; what is outside of blocks comes first in each."""

    layout: Layout

    @cached_property
    def each(self) -> int:
        """How many numbers a stage has: one for each block, and one more."""
        return int(self._block.max(initial=-1)) + 2

    def is_outside(self, group: Ints) -> Bools:
        """(groups,) whether each is of what is outside of blocks."""
        found: Bools = group % self.each == 0
        return found

    @cached_property
    def bytes(self) -> Floats:
        """(groups,) bytes of the weights of each."""
        graph, stages = self.layout.problem.graph, len(self.layout.stage_devices)
        _, weight = np.divmod(self._pairs, max(len(graph.weights), 1))
        found = np.bincount(self._group_of_pair, graph.weights[weight], minlength=stages * self.each)
        return found.astype(np.float64)

    def read_by(self, ops: Ints) -> tuple[Ints, Ints]:
        """(pairs,) positions in `ops`, and (pairs,) groups whose weights each, or its forward op, reads."""
        graph = self.layout.problem.graph
        forward = np.where(graph.mirror[ops] >= 0, graph.mirror[ops], ops)
        position, use = equal_pairs(forward, graph.weight_uses[:, 0])
        key = self.layout.stage[ops[position]] * len(graph.weights) + graph.weight_uses[use, 1]
        at = np.minimum(np.searchsorted(self._pairs, key), max(len(self._pairs) - 1, 0))
        is_known = self._pairs[at] == key if len(self._pairs) else np.zeros(len(key), np.bool_)
        pairs = np.stack([position[is_known], self._group_of_pair[at[is_known]]], axis=1)
        position, group = distinct_pairs(pairs)[0].T
        return position, group

    def of(self, ops: Ints) -> Ints:
        """(ops,) the group of the weights that each, or its forward op, reads; of several the one outside of blocks."""
        position, group = self.read_by(ops)
        lowest, highest = np.full(len(ops), np.iinfo(np.int64).max), np.full(len(ops), -1)
        np.minimum.at(lowest, position, group)
        np.maximum.at(highest, position, group)
        return np.where(lowest == highest, lowest, self.layout.stage[ops] * self.each)

    @cached_property
    def _block(self) -> Ints:
        """(ops,) the block of each forward op, or -1."""
        graph = self.layout.problem.graph
        return np.where(graph.phase == Phase.FORWARD, named_blocks(graph), -1)

    @cached_property
    def _pairs(self) -> Ints:
        """(pairs,) stage and weight, as one number, of the forward ops that read it; in ascending order."""
        op, weight = self._uses
        return np.unique(self.layout.stage[op] * len(self.layout.problem.graph.weights) + weight)

    @cached_property
    def _group_of_pair(self) -> Ints:
        """(pairs,) the group of each."""
        graph, (op, weight) = self.layout.problem.graph, self._uses
        at = np.searchsorted(self._pairs, self.layout.stage[op] * len(graph.weights) + weight)
        lowest, highest = np.full(len(self._pairs), self.each), np.full(len(self._pairs), -1)
        np.minimum.at(lowest, at, self._block[op])
        np.maximum.at(highest, at, self._block[op])
        stage = self._pairs // max(len(graph.weights), 1)
        return stage * self.each + np.where(lowest == highest, lowest, -1) + 1

    @property
    def _uses(self) -> tuple[Ints, Ints]:
        """(uses,) forward ops, and (uses,) the weights that they read."""
        graph = self.layout.problem.graph
        op, weight = graph.weight_uses[graph.phase[graph.weight_uses[:, 0]] == Phase.FORWARD].T
        return op, weight
