"""Sharded states: what replicas hold of weights in parts, by the stage of ZeRO (Rajbhandari et al. 2020).

                 0      1       2       3
    weights      all    all     all     1/n      of n replicas, each
    gradients    all    all     1/n     1/n
    state        all    1/n     1/n     1/n      of the optimizer

From 1 on each replica updates its part, for which it needs no more than that part of the sum of gradients: a
reduce-scatter. Up to 2 the new weights are gathered then; of 3 they are gathered before each pass that reads them
(`envs.expansion.gathered_weights`).

With a `shard_group` of n replicas (hybrid sharding), each group of so many holds all parts. What is scattered and
gathered is so within each group, and each part of the sums is then added up over all groups, once in a step:

    group 0     device 0 --- device 1       |   the same part: an all-reduce of an n-th of the gradients
    group 1     device 2 --- device 3       -   all parts: reduce-scatters and all-gathers
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from envs.expansion.draft import Columns
from envs.expansion.layout import Layout
from envs.expansion.shares import costing
from graphs.algorithms.pairs import equal_pairs
from graphs.op_graph import RESIDENT, Floats, Ints, Phase
from graphs.op_graph.weight_memory import WeightMemory, weight_gradient_bytes


@dataclass(frozen=True, eq=False)
class ShardedStates:
    """The weights of a layout whose replicas hold some of what belongs to them in parts."""

    layout: Layout

    def fill(self, origin: Ints, shard: Ints, work: Ints, amounts: Columns, op_seconds: Floats) -> None:  # noqa: ARG002 - all shards cost the same
        """Write what updates cost: each replica's those of its part."""
        origin = origin.astype(np.int64)
        is_update = self.layout.problem.graph.phase[origin] >= Phase.UPDATE
        for parts in np.unique(self.layout.parts[origin[is_update]]).tolist():
            these = is_update & (self.layout.parts[origin] == parts)
            for key in ("flops", "bytes_accessed", "output_bytes", "sent_bytes", *RESIDENT):
                amounts[key][work[these]] /= parts
            op_seconds[work[these]] = self._seconds(parts)[origin[these]]

    def _seconds(self, parts: int) -> Floats:
        """(ops, devices) seconds of one of the equal parts of each op."""
        problem, graph = self.layout.problem, self.layout.problem.graph
        part = replace(
            graph, flops=graph.flops / parts, bytes_accessed=graph.bytes_accessed / parts,
            output_bytes=graph.output_bytes / parts, batch_law=None,
        )  # fmt: skip
        seconds = costing(problem, part, np.full(len(graph), 1 / parts)).op_seconds
        assert seconds is not None
        return seconds

    def weights(self, origin: Ints, device: Ints, work: Ints) -> tuple[Floats, WeightMemory, Ints, Ints]:  # noqa: ARG002 - as the shards of a split are given
        """As `Divided.weights`; pieces are of a weight and a number of parts."""
        graph, most = self.layout.problem.graph, int(self.layout.parts.max()) + 1
        which, use = equal_pairs(origin[work], graph.weight_uses[:, 0])
        key = graph.weight_uses[use, 1] * most + self.layout.parts[origin[work[which]]]
        keys, piece = np.unique(key, return_inverse=True)
        weight, parts = np.divmod(keys, most)
        share = 1.0 / parts
        stored = share if self._zero == 3 else np.ones(len(parts))
        return stored, self._memory(weight, share), np.stack([work[which], piece], axis=1), weight

    def _memory(self, weight: Ints, share: Floats) -> WeightMemory:
        """What pieces occupy, and for each, (pieces,), its weight and its share of what is held in parts."""
        memory, graph = self.layout.problem.weight_memory, self.layout.problem.graph
        total, gradient = memory.bytes[weight], memory.gradient_bytes[weight]
        whole = np.zeros(len(weight))
        if self._zero < 3:
            whole += graph.weights[weight]
        if self._zero < 2:  # room for gradients that no op makes
            whole += np.where(gradient > 0, 0.0, np.minimum(weight_gradient_bytes(graph)[weight], total - whole))
        held = gradient if self._zero < 2 else gradient * share
        return replace(memory, bytes=whole + (total - whole) * share, gradient_bytes=held)

    @cached_property
    def _zero(self) -> int:
        return self.layout.plan.schedule.zero
