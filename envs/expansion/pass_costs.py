"""What a program that runs pipelines adds to each pass: `Device.pass_seconds`.

It looks up what the pass reads, starts autograd, adds gradients to those of earlier micro-batches, and hands over what
is sent. The first op of a pass takes that much longer, and all others of the pass follow it.

    without   |a b c|         with   |··a b c|         a is the op of the pass with the least priority number
"""

import numpy as np

from envs.costs.costs import costs_of
from envs.expansion.draft import Draft
from envs.expansion.expanded import Role, priorities_of_copies
from envs.expansion.layout import Layout
from envs.expansion.pass_lists import BACKWARD, INPUT_GRADIENT, KINDS, PassLists, pass_kinds
from envs.expansion.recompute import positions_again
from graphs.op_graph import Ints


def lengthen_passes(draft: Draft, lists: PassLists | None) -> None:
    """Say which ops take longer: the first of each pass of a pipeline, which has several stages or micro-batches.

    `lists` are the passes in their order; without an order, backward passes are whole.
    """
    layout = draft.layout
    is_pipeline = len(layout.stage_devices) > 1 or layout.micro_batches > 1
    if not (is_pipeline and layout.problem.cluster.pass_seconds.any()):
        return
    role, origin, device, stage, micro_batch = map(draft.column, ("role", "origin", "device", "stage", "micro_batch"))
    if lists is None:
        kind = _kinds_without_order(layout, role, origin, micro_batch)
    else:
        kind = lists.kind_of_copies(role, origin, stage, micro_batch)
    takes_time = costs_of(layout.problem).op_seconds.max(axis=1) > 0
    these = np.flatnonzero((kind >= 0) & (origin >= 0) & takes_time[origin])
    key = ((stage * len(KINDS) + kind) * layout.micro_batches + micro_batch) * len(layout.problem.cluster) + device
    priority = priorities_of_copies(layout.problem, layout.plan.order, np.arange(len(layout.stage)))
    is_again = role[these] == Role.RECOMPUTED
    own = priority[origin[these]]
    if layout.plan.schedule.recompute_at == "block":  # before the backward pass of the block
        when = np.where(is_again, positions_again(layout, priority)[origin[these]], own)
    else:  # a pass computes again first
        when = ~is_again
    ranked = these[np.lexsort((own, ~is_again, when, key[these]))]
    draft.lengthened = ranked[np.unique(key[ranked], return_index=True)[1]]


def _kinds_without_order(layout: Layout, role: Ints, origin: Ints, micro_batch: Ints) -> Ints:
    """(ops,) FORWARD or BACKWARD, the pass that runs each op of the draft; -1 for none."""
    kind = pass_kinds(layout)[origin]
    kind = np.where((kind >= INPUT_GRADIENT) | (role == Role.RECOMPUTED), BACKWARD, kind)
    return np.where((role <= Role.RECOMPUTED) & (micro_batch >= 0), kind, -1)
