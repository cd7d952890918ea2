"""Recomputation: stages that keep only what enters them, and run their forward ops again for the backward pass.

    forward        a -> b -> c      kept: what a reads
    recomputed     a'-> b'-> c'     once the gradients have arrived, or as soon as the device is free
    backward       c.grad -> b.grad -> a.grad, which read a', b' and c'

Ops that take no time and read nothing are inputs of the step: they are kept.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from envs.costs.costs import costs_of
from envs.expansion.draft import Draft
from envs.expansion.expanded import Role
from envs.expansion.layout import Layout
from envs.expansion.reads import Reads
from graphs.op_graph import Bools, Ints, Phase


def recomputed(draft: Draft, reads: Reads) -> Reads:
    """What is read if the stages that the schedule names are computed again; their ops are added to the draft."""
    layout = draft.layout
    again = _is_recomputed(layout)
    if not again.any():
        return reads
    first = _second_copies(draft, again)
    phase, stage = layout.problem.graph.phase, layout.stage
    from_again = again[reads.producer] & (stage[reads.producer] == stage[reads.consumer])
    read = np.where(from_again, first[reads.producer], reads.read)
    is_backward = phase[reads.consumer] == Phase.BACKWARD
    kept = replace(reads, read=np.where(is_backward, read, reads.read))
    second = replace(reads, read=read, reader=first[reads.consumer])[again[reads.consumer]]
    waits = [_waits(draft, reads, first, members) for members in _by_stage(stage, again)]
    return Reads.together([kept, second, *waits])


def _is_recomputed(layout: Layout) -> Bools:
    """(ops,) forward ops of those stages whose outputs, or what is made of them there, backward ops there read."""
    graph, stage = layout.problem.graph, layout.stage
    again = np.zeros(len(graph), np.bool_)
    if not layout.plan.schedule.recompute:
        return again
    is_asked = np.isin(stage, layout.plan.schedule.recompute)
    of_phase = graph.phase[graph.edges]
    here = (stage[graph.edges[:, 0]] == stage[graph.edges[:, 1]]) & is_asked[graph.edges[:, 0]]
    within = here & ~graph.control & (of_phase[:, 0] == Phase.FORWARD)
    again[graph.edges[within & (of_phase[:, 1] == Phase.BACKWARD), 0]] = True
    position = np.empty(len(graph), np.int64)
    position[graph.topological_order] = np.arange(len(graph))
    forward = graph.edges[within & (of_phase[:, 1] == Phase.FORWARD)]
    needed = again.tolist()
    for producer, consumer in forward[np.argsort(-position[forward[:, 1]])].tolist():
        needed[producer] |= needed[consumer]
    takes_time = np.asarray(costs_of(layout.problem).op_seconds.any(axis=1))
    takes_time[graph.edges[~graph.control, 1]] = True  # or reads something
    return np.array(needed, np.bool_) & takes_time


def _second_copies(draft: Draft, again: Bools) -> Ints:
    """(ops,) the first of the further copies of each op that is computed again, which are added; -1 for others."""
    layout, ops = draft.layout, np.flatnonzero(again)
    added = draft.add_like(np.flatnonzero(again[layout.origin]), Role.RECOMPUTED)
    first = np.full(len(again), -1)
    first[ops] = added[0] + np.cumsum(layout.count[ops]) - layout.count[ops]
    return first


def _waits(draft: Draft, reads: Reads, first: Ints, members: Ints) -> Reads:
    """What the recomputation of a stage waits for: its forward pass and, if it is late, gradients of other stages.

    It waits through one free op for each micro-batch and replica. `first` are the further copies of its `members`.
    """
    layout, one = draft.layout, int(members[0])
    phase, stage = layout.problem.graph.phase, layout.stage
    like = layout.first[one] + np.arange(layout.count[one])
    arrive = draft.add(
        len(like), Role.ARRIVE, layout.device[like], micro_batch=layout.micro_batch[like],
        replica=layout.replica[like], stage=int(stage[one]),
    )  # fmt: skip
    here, is_forward = stage == stage[one], phase == Phase.FORWARD
    inside = here[reads.producer] & here[reads.consumer] & is_forward[reads.consumer]
    is_last = here & is_forward
    is_last[reads.producer[inside]] = False
    is_fed = np.zeros(len(first), np.bool_)
    is_fed[reads.consumer[inside & (first[reads.producer] >= 0)]] = True
    last, sources = np.flatnonzero(is_last), members[~is_fed[members]]
    waits = [
        _order(last, np.full(len(last), one), layout.first[last], np.full(len(last), arrive[0])),
        _order(np.full(len(sources), one), sources, np.full(len(sources), arrive[0]), first[sources]),
    ]
    if layout.plan.schedule.recompute_at == "late":
        from_others = ~reads.control & ~here[reads.producer] & here[reads.consumer]
        from_others &= (phase[reads.producer] == Phase.BACKWARD) & (phase[reads.consumer] == Phase.BACKWARD)
        gradients = reads[from_others & ~layout.is_weight_gradient[reads.producer]]
        gradients = gradients[np.unique(gradients.producer, return_index=True)[1]]
        # a message is sent to one reader alone: then its departure must do
        is_message = ~np.isnan(gradients.message_bytes)
        waits.append(
            replace(
                gradients, consumer=np.full(len(gradients), one), reader=np.full(len(gradients), arrive[0]),
                control=is_message, message_bytes=np.full(len(gradients), np.nan),
            )
        )  # fmt: skip
    return Reads.together(waits)


def _order(producer: Ints, consumer: Ints, read: Ints, reader: Ints) -> Reads:
    """Control edges."""
    return Reads(producer, consumer, read, reader, np.ones(len(read), np.bool_), np.full(len(read), np.nan))


def _by_stage(stage: Ints, again: Bools) -> list[Ints]:
    """Of each stage with such ops, these."""
    ops = np.flatnonzero(again)
    return [ops[stage[ops] == each] for each in np.unique(stage[ops]).tolist()]
