"""Gradients of weights: from the backward passes of all micro-batches and replicas to the updates.

Over micro-batches they are added in place, to those that were made first (`envs.expansion.held_gradients`): an update
waits for each backward pass. Replicas sum them up bucket by bucket: on each replica the backward passes of the
last micro-batch open a gate, and the sends of an all-reduce then follow each other while devices do other work.

    backward 0.0  1.0  ...  ->  gate 0  ->  send 0  ->  ...  ->  sum 0  ->  update 0
                                              send 1  ->  ...

By a stage of ZeRO (`envs.expansion.sharded_states`) groups of weights take the place of buckets, and reduce-scatters
that of all-reduces: from 2 on one for each micro-batch, since a replica keeps no more than its part of the gradients.

A weight that stages share has a gradient in each. It is sent once per update, when its stage has summed it up.
A gradient that holds only the rows of a table that were read is sent to each replica as it is, and held until then.
"""

import numpy as np

from envs.expansion.buckets import Buckets, as_made, shared_bytes, sums_over_replicas
from envs.expansion.collectives import collective
from envs.expansion.draft import Draft
from envs.expansion.expanded import Role
from envs.expansion.held_gradients import hold_parts
from envs.expansion.layout import Layout
from envs.expansion.updates import Updates
from envs.expansion.weight_groups import WeightGroups
from graphs.algorithms.pairs import distinct_pairs, equal_pairs
from graphs.op_graph import Floats, Ints, Phase


def sum_gradients(draft: Draft, groups: WeightGroups | None = None) -> None:
    """Connect the gradients of weights with the updates that wait for them; `groups` are needed by stages of ZeRO."""
    layout = draft.layout
    graph = layout.problem.graph
    number = np.flatnonzero(layout.is_summed)
    is_sparse = layout.is_sparse_gradient[graph.edges[number, 0]]
    updates = Updates.scheduled(layout)
    if is_sparse.any():
        _connect_sparse(draft, updates, graph.edges[number[is_sparse]])
    number = number[~is_sparse]
    if not len(number):
        return
    edges, waits = graph.edges[number], _GradientWaits(updates)
    _add_up(draft, as_made(graph, edges[:, 0]), updates, waits, groups)
    leaves = layout.stage[edges[:, 0]] != layout.stage[edges[:, 1]]
    if leaves.any():
        own = graph.edge_bytes[number[leaves]] if len(graph.edge_bytes) else np.full(leaves.sum(), np.nan)
        size = np.where(np.isnan(own), shared_bytes(layout, *edges[leaves].T), own)
        if groups is not None:  # each replica holds a part of each group
            size = size / layout.parts[edges[leaves, 0]]
        _send_to_other_stages(draft, edges[leaves], size, updates, waits)
    gradient, update = edges[~leaves].T
    edge, copies = layout.copies_of(update)
    waits.wait(gradient[edge], updates.of[copies], layout.replica[copies], copies)
    waits.connect(draft)


class _GradientWaits:
    """Ops that wait until a gradient is summed up on a replica, and the ops that they have to wait for."""

    def __init__(self, updates: Updates) -> None:
        self._shape = updates.most, int(updates.replicas.max())
        self._sources: list[Ints] = []  # (2, n) each: key and op
        self._waiting: list[Ints] = []

    def summed_by(self, gradient: Ints, update: Ints, replica: Ints | int, ops: Ints) -> None:
        """A gradient, for the n-th update, is complete on a replica once all of these have ended; (n,) each."""
        self._sources.append(self._rows(gradient, update, replica, ops))

    def wait(self, gradient: Ints, update: Ints, replica: Ints, ops: Ints) -> None:
        """Ops are to wait for a gradient; (n,) each."""
        self._waiting.append(self._rows(gradient, update, replica, ops))

    def connect(self, draft: Draft) -> None:
        """Make each op wait."""
        (key, source), (wanted, waiting) = (np.concatenate(rows, axis=1) for rows in (self._sources, self._waiting))
        of_source, of_waiting = equal_pairs(key, wanted)
        pairs = distinct_pairs(np.stack([source[of_source], waiting[of_waiting]], axis=1))[0]
        draft.connect(pairs[:, 0], pairs[:, 1], control=True)

    def _rows(self, gradient: Ints, update: Ints, replica: Ints | int, ops: Ints) -> Ints:
        updates, replicas = self._shape
        return np.stack([(gradient * updates + update) * replicas + replica, ops])


def _connect_sparse(draft: Draft, updates: Updates, edges: Ints) -> None:
    """Send gradients of looked-up rows, (edges, 2), to all replicas of their update as they are."""
    edge, made = draft.layout.copies_of(edges[:, 0])
    of_reader, reader = draft.layout.copies_of(edges[:, 1])
    key, wanted = edge * updates.most + updates.of[made], of_reader * updates.most + updates.of[reader]
    of_made, of_wanted = equal_pairs(key, wanted)
    draft.connect(made[of_made], reader[of_wanted])


def _add_up(
    draft: Draft, gradients: Ints, updates: Updates, waits: _GradientWaits, groups: WeightGroups | None
) -> None:
    """Sum up each gradient over the micro-batches and replicas of its stage."""
    layout, zero = draft.layout, draft.layout.plan.schedule.zero
    is_alone = layout.replicas[gradients] == 1
    which, copies = layout.copies_of(gradients[is_alone])
    waits.summed_by(gradients[is_alone][which], updates.of[copies], 0, copies)
    gradients = gradients[~is_alone]
    if not len(gradients):
        return
    buckets = (
        Buckets.fill(layout, gradients) if groups is None else Buckets.by_group(layout, gradients, groups.of(gradients))
    )
    # in parts, gradients are added up over micro-batches: each of these has a sum of its own
    turns = Updates(layout, of_step=False) if zero >= 2 else updates
    ready = np.full((len(buckets.stage), turns.most, int(updates.replicas.max())), -1)
    done = ready.copy()
    for sums, servers, (bucket, turn) in sums_over_replicas(turns, buckets):
        gates = sums.add(draft, Role.GATE)[:, 0]
        place = bucket[:, None], turn[:, None], sums.replica
        ready[place] = gates
        done[place] = collective(draft, layout.all_reduce, sums, gates, servers, gathers=zero == 0)
    which, copies = layout.copies_of(gradients)
    place = buckets.of[which], turns.of[copies], layout.replica[copies]
    draft.connect(copies, ready[place], control=True)
    if zero >= 2:
        hold_parts(draft, gradients, buckets, done)
    if layout.plan.schedule.shard_group:
        _sum_over_groups(draft, updates, buckets, done)
    summed = done[buckets.of]  # (gradients, sums, replicas)
    index, turn, replica = np.nonzero(summed >= 0)
    waits.summed_by(gradients[index], turn * (zero < 2), replica, summed[index, turn, replica])


def _sum_over_groups(draft: Draft, updates: Updates, buckets: Buckets, done: Ints) -> None:
    """Add up parts of sums over the groups of replicas that hold all parts, once all micro-batches' are there.

    In `done`, (buckets, sums, replicas), ops that end with the sums of groups are replaced by those that end then.
    """
    for sums, servers, (bucket, _) in sums_over_replicas(updates, buckets, across=True):
        gates = sums.add(draft, Role.GATE)[:, 0]
        own = done[bucket[:, None], :, sums.replica]  # (sums, members, micro-batches)
        draft.connect(own.ravel(), np.broadcast_to(gates[:, :, None], own.shape).ravel(), control=True)
        done[bucket[:, None], :, sums.replica] = -1
        done[bucket[:, None], 0, sums.replica] = collective(draft, draft.layout.all_reduce, sums, gates, servers)


# ---- between stages --------------------------------------------------------------------------------------------------


def _send_to_other_stages(draft: Draft, edges: Ints, size: Floats, updates: Updates, waits: _GradientWaits) -> None:
    """Send gradients, (edges, 2), of some bytes, (edges,), to a stage that shares their weights, or updates them."""
    layout = draft.layout
    gradient, consumer = edges.T
    edge, copies = layout.copies_of(consumer)
    is_update = layout.problem.graph.phase[consumer] >= Phase.UPDATE
    # the copies of a gradient that are for the same update receive the other one together
    targets = np.stack([edge, updates.of[copies], layout.replica[copies], copies * is_update[edge]], axis=1)
    edge, update, replica, copy = np.unique(targets, axis=0).T
    arriving = np.flatnonzero(~is_update[edge])
    sender_stage, stage = layout.stage[gradient[edge]], layout.stage[consumer[edge]]
    copy[arriving] = draft.add(
        len(arriving), Role.SUM, layout.device_of[stage, replica][arriving], origin=consumer[edge[arriving]],
        micro_batch=updates.micro_batch(stage, update, replica)[arriving], replica=replica[arriving],
        stage=stage[arriving],
    )  # fmt: skip
    sent = updates.counterpart(stage, update, sender_stage)
    sender = replica % updates.replicas[sender_stage]
    sends = draft.add(
        len(edge), Role.SEND, layout.device_of[sender_stage, sender], origin=gradient[edge],
        micro_batch=updates.micro_batch(sender_stage, sent, sender), replica=sender, stage=sender_stage,
    )  # fmt: skip
    waits.wait(gradient[edge], sent, sender, sends)
    draft.connect(sends, copy, message_bytes=size[edge])
    which, carrier = _carried_on(layout, consumer)
    of_slot, of_carrier = equal_pairs(edge[arriving], which)
    slot = arriving[of_slot]
    waits.summed_by(carrier[of_carrier], update[slot], replica[slot], copy[slot])


def _carried_on(layout: Layout, ops: Ints) -> tuple[Ints, Ints]:
    """(pairs,) positions in `ops`, gradients, and (pairs,) the gradients of their stage that these are added to.

    They are those that leave the stage, or that its updates wait for; an op may be one itself.
    """
    graph = layout.problem.graph
    within = layout.is_weight_gradient[graph.edges].all(axis=1) & ~graph.control
    within &= layout.stage[graph.edges[:, 0]] == layout.stage[graph.edges[:, 1]]
    edges = graph.edges[within]
    rows = found = np.stack([np.arange(len(ops)), ops], axis=1)
    while len(rows):
        of_row, of_edge = equal_pairs(rows[:, 1], edges[:, 0])
        rows = distinct_pairs(np.stack([rows[of_row, 0], edges[of_edge, 1]], axis=1))[0]
        found = np.concatenate([found, rows])
    found = distinct_pairs(found)[0]
    is_summed = np.isin(found[:, 1], graph.edges[layout.is_summed, 0])
    return found[is_summed, 0], found[is_summed, 1]
