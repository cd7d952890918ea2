"""Held gradients: a device holds the gradient of a weight from its first micro-batch on, until the update has read it.

    backward, micro-batch 0  ------------------------------>  update     its output is held until then
    backward, micro-batch 1  - - - - - - - - - - - - - - ->              added to the first in place, once it is made

So two exist of one gradient at a time, as in PyTorch, which keeps the first as it is and adds others to it. Which
micro-batch comes first is up to the order of passes. Gradients for which room is set aside are left out
(`graphs.op_graph.weight_memory`), and so are those of looked-up rows, which are read as they are. By ZeRO's stages from
2 on, a replica holds a gradient until it is scattered, and its part of the sum until the update.
"""

import numpy as np

from envs.expansion.buckets import Buckets, gradient_bytes
from envs.expansion.draft import Draft
from envs.expansion.expanded import Role
from envs.expansion.layout import Layout
from envs.expansion.pass_lists import BACKWARD, WEIGHT_GRADIENT, PassLists
from envs.plans.schedule import AS_READY
from graphs.algorithms.pairs import equal_pairs, ranges
from graphs.op_graph import Ints, Phase


def hold_gradients(draft: Draft) -> None:
    """Let the updates of each replica read the gradients that it makes first."""
    layout = draft.layout
    gradient, update = _held(layout)
    if layout.plan.schedule.zero >= 2:
        gradient, update = (each[layout.replicas[gradient] == 1] for each in (gradient, update))
    if not len(gradient):
        return
    if layout.plan.schedule.update == "micro_batch":
        count = layout.count[gradient]
        draft.connect(ranges(layout.first[gradient], count), ranges(layout.first[update], count))
        return
    replicas = layout.replicas[gradient]
    which, replica = np.repeat(np.arange(len(gradient)), replicas), ranges(np.zeros_like(replicas), replicas)
    op = gradient[which]
    micro_batch = first_made(layout)[layout.stage[op], replica]
    within = np.where(layout.takes_turns[op], 0, replica)
    draft.connect(layout.first[op] + micro_batch * layout.width[op] + within, layout.first[update[which]] + replica)


def hold_parts(draft: Draft, gradients: Ints, buckets: Buckets, done: Ints) -> None:
    """Let replicas hold `gradients`, (gradients,) ops in these buckets, until they are scattered, and then their parts.

    `done`, (buckets, micro-batches, replicas), are ops that end when the parts are added up.
    """
    layout = draft.layout
    bucket_of = np.full(len(layout.problem.graph), -1)
    bucket_of[gradients] = buckets.of
    is_held = layout.problem.weight_memory.gradients[gradients]
    which, copies = layout.copies_of(gradients[is_held])
    bucket = buckets.of[is_held][which]
    draft.connect(copies, done[bucket, layout.micro_batch[copies], layout.replica[copies]])
    gradient, reader = _held(layout)
    gradient, reader = (each[bucket_of[gradient] >= 0] for each in (gradient, reader))
    size = np.bincount(buckets.of[is_held], gradient_bytes(layout, gradients)[is_held], minlength=len(buckets.stage))
    bucket, replica = np.nonzero((size[:, None] > 0) & (done[:, 0] >= 0))
    stage = buckets.stage[bucket]
    first = first_made(layout)[stage, replica]
    parts = np.full((len(size), done.shape[2]), -1)
    parts[bucket, replica] = draft.add(
        len(bucket), Role.SUM, layout.device_of[stage, replica], origin=buckets.origin[bucket], micro_batch=first,
        replica=replica, stage=stage, output_bytes=size[bucket] / layout.parts[buckets.origin[bucket]],
    )  # fmt: skip
    draft.connect(done[bucket, first, replica], parts[bucket, replica], control=True)
    which, copies = layout.copies_of(reader)
    draft.connect(parts[bucket_of[gradient[which]], layout.replica[copies]], copies)


def _held(layout: Layout) -> tuple[Ints, Ints]:
    """(pairs,) gradients, and what is the last on their devices to read them: an update, or the arrival of new values.

    The latter is so for a weight that another stage updates.
    """
    graph = layout.problem.graph
    edges = graph.edges[layout.is_summed & layout.problem.weight_memory.gradients[graph.edges[:, 0]]]
    leaves = layout.stage[edges[:, 0]] != layout.stage[edges[:, 1]]
    gone, refreshed = np.unique(edges[leaves, 0]), np.flatnonzero(graph.phase == Phase.REFRESH)
    of_gone, of_refreshed = equal_pairs(graph.mirror[gone], graph.mirror[refreshed])
    pairs = [edges[~leaves], np.column_stack([gone[of_gone], refreshed[of_refreshed]])]
    gradient, reader = np.concatenate(pairs).T
    return gradient, reader


def first_made(layout: Layout) -> Ints:
    """(stages, most replicas) the micro-batch whose gradients of weights each replica of a stage makes first."""
    replica = np.arange(layout.device_of.shape[1])
    takes_turns = layout.plan.schedule.sharing == "turns"
    found = np.tile(replica * takes_turns, (len(layout.stage_devices), 1))
    if layout.plan.schedule.order == AS_READY:
        return found  # earlier micro-batches go first
    lists = PassLists.of(layout)
    makes = np.flatnonzero((lists.kind == BACKWARD) | (lists.kind == WEIGHT_GRADIENT))
    if not len(makes):
        return found  # a forward pass
    devices = int(lists.device.max()) + 1
    keys, first = np.unique(lists.stage[makes] * devices + lists.device[makes], return_index=True)
    wanted = np.arange(len(found))[:, None] * devices + layout.device_of
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where((keys[at] == wanted) & (layout.device_of >= 0), lists.micro_batch[makes[first[at]]], found)
