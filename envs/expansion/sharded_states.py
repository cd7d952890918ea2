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

Where updates are offloaded (`envs.expansion.offloaded_updates`), the state of a replica's part is on its CPU instead,
with a copy of the weights of which the state has no master copy.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from envs.expansion.draft import Columns
from envs.expansion.layout import Layout
from envs.expansion.shares import costing
from graphs.algorithms.pairs import equal_pairs
from graphs.op_graph import RESIDENT, Floats, Ints, Phase
from graphs.op_graph.precision import has_master_copy
from graphs.op_graph.weight_memory import WeightMemory, weight_gradient_bytes

_TOGETHER, _APART, _ON_CPU = range(3)  # where a piece is: with the optimizer's state, or one of the two by itself


@dataclass(frozen=True, eq=False)
class ShardedStates:
    """The weights of a layout whose replicas hold some of what belongs to them in parts, or elsewhere."""

    layout: Layout

    def fill(self, origin: Ints, shard: Ints, work: Ints, amounts: Columns, op_seconds: Floats) -> None:  # noqa: ARG002 - all shards cost the same
        """Write what updates cost: each replica's those of its part."""
        origin = origin.astype(np.int64)
        is_update = self.layout.problem.graph.phase[origin] >= Phase.UPDATE
        for parts in np.unique(self.layout.parts[origin[is_update]]).tolist():
            these = is_update & (self.layout.parts[origin] == parts)
            for key in ("flops", "bytes_accessed", "output_bytes", "sent_bytes", *RESIDENT):
                amounts[key][work[these]] /= parts
            op_seconds[work[these]] = self._seconds(parts)[origin[these], : op_seconds.shape[1]]

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

    def weights(self, origin: Ints, device: Ints, work: Ints) -> tuple[Floats, WeightMemory, Ints, Ints]:
        """As `Divided.weights`; pieces are of a weight, a number of parts, and of the state that is on a CPU a replica.

        Updates that run elsewhere use the latter, and what is on the device of these is all but the state.
        """
        layout, graph = self.layout, self.layout.problem.graph
        is_away = np.zeros(len(device), np.bool_)
        is_away[: len(layout.origin)] = layout.is_offloaded
        mirror = graph.mirror[origin[work]]
        reader = np.where(is_away[work] & (mirror >= 0), mirror, origin[work])
        which, use = equal_pairs(reader, graph.weight_uses[:, 0])
        op, weight = work[which], graph.weight_uses[use, 1]
        kept = ~is_away[op] | (graph.trained_weights[weight] > 0)
        op, weight = op[kept], weight[kept]
        is_on_cpu = is_away[op]
        of_replica = np.where(is_on_cpu, layout.replica[np.where(is_on_cpu, op, 0)], -1)
        place = np.where(is_on_cpu, _ON_CPU, np.where(layout.updated_on[device[op]] == device[op], _TOGETHER, _APART))
        columns = weight, layout.parts[origin[op]], place, of_replica + 1
        shape = tuple(int(column.max(initial=0)) + 1 for column in columns)
        keys, piece = np.unique(np.ravel_multi_index(columns, shape), return_inverse=True)
        weight, parts, place, _ = np.unravel_index(keys, shape)
        stored, memory = self._memory(weight, 1.0 / parts, place)
        return stored, memory, np.stack([op, piece], axis=1), weight

    def _memory(self, weight: Ints, share: Floats, place: Ints) -> tuple[Floats, WeightMemory]:
        """The share of its weight that each piece, (pieces,), is, and what it occupies.

        For each are given its weight, its share of what is held in parts, and what is where.
        """
        memory, graph = self.layout.problem.weight_memory, self.layout.problem.graph
        total, gradient, size = memory.bytes[weight], memory.gradient_bytes[weight], graph.weights[weight]
        room = np.where(gradient > 0, 0.0, np.minimum(weight_gradient_bytes(graph)[weight], total - size))
        state = (total - size - room) * share  # of gradients that no op makes there is room
        stored = share if self._zero == 3 else np.ones(len(share))
        here = size * stored + room * (share if self._zero >= 2 else 1.0)
        copied = np.where(has_master_copy(graph)[weight], 0.0, share)
        is_on_cpu = place == _ON_CPU
        stored = np.where(is_on_cpu, copied, stored)
        held = np.where(is_on_cpu, 0.0, gradient * (share if self._zero >= 2 else 1.0))
        occupied = np.where(is_on_cpu, size * copied, here) + np.where(place == _APART, 0.0, state)
        return stored, replace(memory, bytes=occupied, gradient_bytes=held)

    @cached_property
    def _zero(self) -> int:
        return self.layout.plan.schedule.zero
