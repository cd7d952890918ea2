"""Gathered weights: what replicas that hold weights in parts, or update them so, gather of them and when.

Of ZeRO's stages 1 and 2 each group of weights is gathered once its updates have ended. Of stage 3 it is gathered for
each pass that reads it, and freed after that; what is outside of blocks stays from the forward pass of a micro-batch to
the end of its backward pass, as of the root of PyTorch's FullyShardedDataParallel:

    forward    gather 0   gather 1   gather 2 ...        gather n may begin once what reads n - 2 has ended:
                          block 0    block 1             two groups are there at a time
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.expansion.buckets import Buckets, sums_over_replicas
from envs.expansion.collectives import collective
from envs.expansion.draft import Draft
from envs.expansion.expanded import Role
from envs.expansion.pass_lists import BACKWARD, FORWARD, INPUT_GRADIENT, PassLists
from envs.expansion.recompute import positions_again
from envs.expansion.updates import Updates
from envs.expansion.weight_groups import WeightGroups
from envs.plans.schedule import AS_READY
from graphs.algorithms.order import compressed_rows
from graphs.algorithms.pairs import distinct_pairs, equal_pairs
from graphs.op_graph import Ints, Phase


def gather_weights(draft: Draft, groups: WeightGroups) -> None:
    """Add the gathers of a plan whose schedule has a stage of ZeRO."""
    if draft.layout.plan.schedule.zero < 3:
        _gather_updated(draft, groups)
    else:
        _Gathers(draft, groups).write()


def _gather_updated(draft: Draft, groups: WeightGroups) -> None:
    """Gather what each replica has updated a part of."""
    layout = draft.layout
    updates = np.flatnonzero((layout.problem.graph.phase >= Phase.UPDATE) & (layout.replicas > 1))
    if not len(updates):
        return
    found, which = np.unique(groups.of(updates), return_inverse=True)
    last = np.zeros(len(found), np.int64)
    last[which] = updates
    buckets = Buckets(which, last, layout.stage[last], groups.bytes[found])
    gates = np.full((len(found), int(layout.replicas.max())), -1)
    for sums, servers, (bucket, _) in sums_over_replicas(Updates.scheduled(layout), buckets):
        ready = gates[bucket[:, None], sums.replica] = sums.add(draft, Role.GATE)[:, 0]
        collective(draft, layout.all_reduce, sums, ready, servers, scatters=False)
    update, copies = layout.copies_of(updates)
    draft.connect(copies, gates[which[update], layout.replica[copies]], control=True)


@dataclass(frozen=True, eq=False)
class _Readers:
    """Copies of ops that read gathered weights; each of a gather, a micro-batch and a replica."""

    gather: Ints
    micro_batch: Ints
    replica: Ints
    copy: Ints
    position: Ints  # of its op in the graph's topological order


class _Gathers:
    """Gathers of groups of weights for passes: of each group one for the forward and one for the backward pass.

    What is outside of blocks, if there are any in its stage, has one for both.
    """

    def __init__(self, draft: Draft, groups: WeightGroups) -> None:
        self.draft, self.layout, self.groups = draft, draft.layout, groups
        graph = self.layout.problem.graph
        is_read = (graph.phase == Phase.FORWARD) | ((graph.phase == Phase.BACKWARD) & ~self.layout.is_weight_gradient)
        ops = np.flatnonzero(is_read & (self.layout.replicas > 1))
        at, group = groups.read_by(ops)
        self.op, self.found, self.group = ops[at], *np.unique(group, return_inverse=True)
        stage, outside = self.found // groups.each, groups.is_outside(self.found)
        self.stays = outside & np.isin(stage, stage[~outside])  # (groups,)
        first = np.full(2 * len(self.found), len(graph))  # (gathers,) the first op that reads each in its pass
        np.minimum.at(first, 2 * self.group + (graph.phase[self.op] == Phase.BACKWARD), self.op)
        self.first = np.where(first < len(graph), first, first.reshape(-1, 2).min(axis=1).repeat(2))

    def write(self) -> None:
        """Add them to the draft."""
        if not len(self.found):
            return
        layout, readers = self.layout, self._readers
        used = np.unique(readers.gather)
        origin, size = self.first[used], self.groups.bytes[self.found[used // 2]]
        buckets = Buckets(used, origin, layout.stage[origin], size)
        shape = len(self.first), layout.micro_batches, int(layout.replicas.max())
        gates, done = np.full(shape, -1), np.full(shape, -1)
        for sums, servers, (bucket, micro_batch) in sums_over_replicas(Updates(layout, of_step=False), buckets):
            place = used[bucket][:, None], micro_batch[:, None], sums.replica
            gates[place] = ready = sums.add(self.draft, Role.GATE, output_bytes=sums.bytes)[:, 0]
            done[place] = collective(
                self.draft, layout.all_reduce, sums, ready, servers, scatters=False
            )  # fmt: skip
        place = readers.gather, readers.micro_batch, readers.replica
        self.draft.connect(gates[place], readers.copy)
        self.draft.connect(done[place], readers.copy, control=True)
        self._wait(gates)

    @cached_property
    def _readers(self) -> _Readers:
        draft, layout = self.draft, self.layout
        role, origin, micro_batch, replica = map(draft.column, ("role", "origin", "micro_batch", "replica"))
        copies = np.flatnonzero((role <= Role.RECOMPUTED) & (origin >= 0))
        at, pair = equal_pairs(origin[copies], self.op)
        copy, group = copies[at], self.group[pair]
        is_later = (role[copy] == Role.RECOMPUTED) | (layout.problem.graph.phase[origin[copy]] == Phase.BACKWARD)
        order = layout.problem.graph.topological_position
        position = np.where(
            role[copy] == Role.RECOMPUTED, positions_again(layout, order)[origin[copy]], order[origin[copy]]
        )
        return _Readers(2 * group + (is_later & ~self.stays[group]), micro_batch[copy], replica[copy], copy, position)

    def _wait(self, gates: Ints) -> None:
        """Let each gather wait until what reads the last but one before it on its device has ended."""
        readers, (_, batches, replicas) = self._readers, gates.shape
        first = np.full(len(gates), len(self.layout.problem.graph))
        np.minimum.at(first, readers.gather, readers.position)
        key = (readers.gather * batches + readers.micro_batch) * replicas + readers.replica
        starts, which = compressed_rows(key, np.arange(len(key)), gates.size)
        pairs = list[tuple[int, int]]()
        for passes in self._passes():
            before: list[tuple[int, int]] = []  # gathers: micro-batch, and place in `gates`
            for stage, kind, micro_batch, replica in passes:
                for gather in self._of_pass(stage, kind, first):
                    place = (gather * batches + micro_batch) * replicas + replica
                    stays = bool(self.stays[gather // 2])
                    for other, at in before[-1:] if stays else before[-2:-1]:
                        rows = which[starts[at] : starts[at + 1]]
                        is_before = (readers.position[rows] < first[gather]) | (other != micro_batch)
                        pairs += [(copy, int(gates.flat[place])) for copy in readers.copy[rows[is_before]].tolist()]
                    if not stays:
                        before.append((micro_batch, place))
        copies, waiting = distinct_pairs(np.array(pairs, np.int64).reshape(-1, 2))[0].T
        self.draft.connect(copies, waiting, control=True)

    def _of_pass(self, stage: int, kind: int, first: Ints) -> list[int]:
        """The gathers of a pass, in the order in which it reads them."""
        of_stage = np.flatnonzero(self.found // self.groups.each == stage)
        later = kind != FORWARD
        gathers = [2 * group + later for group in of_stage.tolist() if not (later and self.stays[group])]
        size = len(self.layout.problem.graph)
        return sorted((each for each in gathers if first[each] < size), key=lambda each: (first[each], each))

    def _passes(self) -> Iterator[list[tuple[int, int, int, int]]]:
        """Of each device its passes that read weights, in their order: stage, kind, micro-batch and replica."""
        layout = self.layout
        replica = {(stage, on): at for stage, each in enumerate(layout.stage_devices) for at, on in enumerate(each)}
        if layout.plan.schedule.order == AS_READY:  # of one micro-batch
            stages = range(len(layout.stage_devices))
            for device in sorted({device for _, device in replica}):
                here = [stage for stage in stages if (stage, device) in replica]
                passes = [(stage, FORWARD) for stage in here] + [(stage, BACKWARD) for stage in reversed(here)]
                yield [(stage, kind, 0, replica[stage, device]) for stage, kind in passes]
            return
        lists = PassLists.of(layout)
        reads = np.isin(lists.kind, (FORWARD, BACKWARD, INPUT_GRADIENT))
        for device in np.unique(lists.device).tolist():
            mine = np.flatnonzero(reads & (lists.device == device))
            rows = zip(*(each[mine].tolist() for each in (lists.stage, lists.kind, lists.micro_batch)), strict=True)
            yield [(stage, kind, number, replica[stage, device]) for stage, kind, number in rows]
