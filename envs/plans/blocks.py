"""Parts of a model whose forward ops are computed again as one: stages, or the blocks of layers in them.

Blocks as with `torch.utils.checkpoint` around each of them: what enters a block is kept, and what is outside of blocks,
such as embedding and head, keeps what it makes.

    forward     embedding   block 0   block 1   head
    backward    head.grad   block 1 again   block 1.grad   block 0 again   block 0.grad   embedding.grad
"""

import numpy as np

from envs.plans.schedule import Schedule
from graphs.algorithms.order import is_acyclic
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints, OpGraph, Phase
from graphs.op_groups.layer_names import named_blocks


def parts_again(graph: OpGraph, stage: Ints, schedule: Schedule) -> Ints:
    """(ops,) the part that each op is in, or -1 if it is not computed again; `stage` is that of each op.

    A backward op is in the part of its forward op.
    """
    is_asked = np.isin(stage, schedule.recompute)
    if schedule.recompute_at != "block" or not is_asked.any():
        return np.where(is_asked, stage, -1)
    named = named_blocks(graph)
    block = named[np.where(graph.mirror >= 0, graph.mirror, np.arange(len(graph)))]
    return np.where(is_asked & (block >= 0), stage * (named.max() + 1) + block, -1)


def check_blocks(graph: OpGraph, stage: Ints, schedule: Schedule) -> None:
    """Raise InputError unless blocks that are to be computed again, if any, are such; `stage` is that of each op."""
    if schedule.recompute_at != "block" or not schedule.recompute:
        return
    part = parts_again(graph, stage, schedule)
    remedy = "use recompute_at 'late', by which whole stages are recomputed"
    if (named_blocks(graph) < 0).all():
        raise InputError(
            f"the names of {graph.name!r} show no blocks, as numbers in a container do, which could be recomputed "
            f"one by one; {remedy}"
        )
    forward = graph.edges[(graph.phase[graph.edges] == Phase.FORWARD).all(axis=1)]
    for each in np.unique(part[part >= 0]).tolist():
        node = np.where(part == each, len(graph), np.arange(len(graph)))[forward]
        if not is_acyclic(node[node[:, 0] != node[:, 1]], len(graph) + 1):
            op = graph.names[int(np.flatnonzero(part == each)[0])]
            raise InputError(
                f"the block of op {op!r} reads what is made of its own results outside of it, so that it cannot be "
                f"recomputed as one; {remedy}"
            )
