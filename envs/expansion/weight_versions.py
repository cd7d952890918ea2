"""Versions of weights: where each micro-batch updates them, backward passes need those that their forward passes read.

PipeDream (Narayanan et al. 2019, section 3.3, "weight stashing"): a forward pass reads the newest weights of its
device, and the backward pass of the same micro-batch reads them again. With K micro-batches in flight there are K
versions; the newest one is the weights themselves.

    device    F0 F1 F2 B0 U0 F3 B1 U1 F4 ...      K = 3
              version 0, copied before U0, is read by B1 and B2; version 1, copied before U1, by B3; ...

Which version a forward pass reads is up to the order of passes: the weights after the updates of those backward passes
that come before it on its device, as updates run with the backward passes of their micro-batches. Where replicas take
turns, an update waits until all of its round have their gradients. Passes go on in the meantime, but for the next
gradients of weights: there is room for one.
"""

import numpy as np

from envs.expansion.draft import Draft
from envs.expansion.expanded import Role
from envs.expansion.layout import Layout
from envs.expansion.pass_lists import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, PassLists
from graphs.algorithms.pairs import distinct_pairs, equal_pairs
from graphs.op_graph import Floats, Ints, Phase


def keep_versions(draft: Draft) -> None:
    """If each micro-batch updates the weights, copy those of each stage before updates that come too early.

    Replicas that take turns have their next gradients wait for their update.
    """
    layout = draft.layout
    if layout.plan.schedule.update == "step" or layout.micro_batches == 1:
        return
    following, kept = (np.concatenate(rows) for rows in zip(*_histories(layout), strict=True))
    _let_gradients_wait(draft, following)
    if len(kept):
        _add_versions(draft, kept)


def _histories(layout: Layout) -> list[tuple[Ints, Ints]]:
    """Of each stage on each device two arrays, whose rows, (n, 4), are the stage, its replica and two micro-batches.

    They are those that update the weights one after the other; and those of which the second's backward pass reads the
    weights that the update of the first is going to change.
    """
    lists, histories = PassLists.of(layout), []
    is_last = (lists.kind == BACKWARD) | (lists.kind == WEIGHT_GRADIENT)  # all gradients of the micro-batch are there
    for stage, devices in enumerate(layout.stage_devices):
        for replica, device in enumerate(devices):
            own = (lists.device == device) & (lists.stage == stage)
            updated = lists.micro_batch[own & is_last]
            micro_batch, kind = lists.micro_batch[own], lists.kind[own]
            done = np.cumsum(is_last[own]) - is_last[own]  # updates before each pass
            seen = np.zeros(layout.micro_batches, np.int64)
            seen[micro_batch[kind == FORWARD]] = done[kind == FORWARD]
            reads = (kind == BACKWARD) | (kind == INPUT_GRADIENT)
            late = reads & (seen[micro_batch] < done)
            pairs = (updated[:-1], updated[1:]), (updated[seen[micro_batch[late]]], micro_batch[late])
            rows = (np.stack([np.full(len(one), stage), np.full(len(one), replica), one, two], 1) for one, two in pairs)
            histories.append((next(rows), next(rows)))
    return histories


def _let_gradients_wait(draft: Draft, following: Ints) -> None:
    """The next gradients on a replica that takes turns are made after the update that reads the ones before."""
    layout, graph = draft.layout, draft.layout.problem.graph
    producer, update = graph.edges[layout.is_summed].T
    these = layout.takes_turns[update] & (layout.stage[producer] == layout.stage[update])
    producer, update = producer[these], update[these]
    row, edge = equal_pairs(following[:, 0], layout.stage[update])
    _, replica, first, then = following[row].T
    ends = _copy(layout, update[edge], first, replica), _copy(layout, producer[edge], then, replica)
    draft.connect(*ends, control=True)


def _add_versions(draft: Draft, kept: Ints) -> None:
    """Copies of weights, made when an update has its replica's gradients, and who reads them.

    `kept` are the second rows of `_histories`.
    """
    layout, graph = draft.layout, draft.layout.problem.graph
    made, which = np.unique(kept[:, :3], axis=0, return_inverse=True)
    stage, replica, micro_batch = made.T
    versions = draft.add(
        len(made), Role.VERSION, layout.device_of[stage, replica], micro_batch=micro_batch, replica=replica,
        stage=stage, output_bytes=_weight_bytes(layout)[stage],
    )  # fmt: skip

    gradients = np.unique(graph.edges[layout.is_summed, 0])
    row, gradient = equal_pairs(stage, layout.stage[gradients])
    gradient = _copy(layout, gradients[gradient], micro_batch[row], replica[row])
    draft.connect(gradient, versions[row], control=True)  # until then, the weights themselves are that version
    updates = np.flatnonzero(graph.phase == Phase.UPDATE)
    row, update = equal_pairs(stage, layout.stage[updates])
    draft.connect(versions[row], _copy(layout, updates[update], micro_batch[row], replica[row]), control=True)
    uses_weights = np.zeros(len(graph), np.bool_)
    uses_weights[graph.weight_uses[:, 0]] = True
    uses_weights |= uses_weights[graph.mirror] & (graph.mirror >= 0)
    readers = np.flatnonzero((graph.phase == Phase.BACKWARD) & ~layout.is_weight_gradient & uses_weights)
    row, reader = equal_pairs(kept[:, 0], layout.stage[readers])
    reader = _copy(layout, readers[reader], kept[row, 3], kept[row, 1])
    draft.connect(versions[which.ravel()[row]], reader)


def _copy(layout: Layout, op: Ints, micro_batch: Ints, replica: Ints) -> Ints:
    """(n,) the copy of each op for a micro-batch on a replica; (n,) each."""
    return layout.first[op] + micro_batch * layout.width[op] + np.where(layout.takes_turns[op], 0, replica)


def _weight_bytes(layout: Layout) -> Floats:
    """(stages,) bytes of the weights of each."""
    graph = layout.problem.graph
    op, weight = graph.weight_uses.T
    stage, weight = distinct_pairs(np.stack([layout.stage[op], weight], axis=1))[0].T
    return np.asarray(
        np.bincount(stage, graph.trained_weights[weight], minlength=len(layout.stage_devices)), np.float64
    )
