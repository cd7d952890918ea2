"""Recomputation: parts of a model that keep only what enters them, and run their forward ops again.

Parts are stages, or blocks of layers (`envs.plans.blocks`).

    forward        a -> b -> c      kept: what a reads
    recomputed     a'-> b'-> c'     once the gradients have arrived, or as soon as the device is free
    backward       c.grad -> b.grad -> a.grad, which read a', b' and c'

Ops that take no time and read nothing are inputs of the step: they are kept.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.costs.costs import costs_of
from envs.expansion.draft import Draft
from envs.expansion.expanded import Role
from envs.expansion.layout import Layout
from envs.expansion.reads import Reads
from envs.plans.blocks import parts_again
from graphs.op_graph import Bools, Ints, Phase


def recomputed(draft: Draft, reads: Reads) -> Reads:
    """What is read if the parts that the schedule says are computed again; their ops are added to the draft."""
    layout = draft.layout
    part = parts_again(layout.problem.graph, layout.stage, layout.plan.schedule)
    again = _is_recomputed(layout, part)
    if not again.any():
        return reads
    first = _second_copies(draft, again)
    phase = layout.problem.graph.phase
    from_again = again[reads.producer] & (part[reads.producer] == part[reads.consumer])
    read = np.where(from_again, first[reads.producer], reads.read)
    is_backward = phase[reads.consumer] == Phase.BACKWARD
    kept = replace(reads, read=np.where(is_backward, read, reads.read))
    second = replace(reads, read=read, reader=first[reads.consumer])[again[reads.consumer]]
    waits = [_waits(draft, reads, first, part == each) for each in np.unique(part[again]).tolist()]
    return Reads.together([kept, second, *waits])


def positions_again(layout: Layout, position: NDArray[Any]) -> NDArray[Any]:
    """(ops,) where each is computed again, among the positions of ops in the order of the program, (ops,).

    A block is so where its backward pass begins, a stage in the order of its forward pass.
    """
    graph = layout.problem.graph
    part = parts_again(graph, layout.stage, layout.plan.schedule)
    if layout.plan.schedule.recompute_at != "block" or part.max() < 0:
        return position
    backward = np.flatnonzero((part >= 0) & (graph.phase == Phase.BACKWARD))
    begin = np.full(int(part.max()) + 1, position.max())
    np.minimum.at(begin, part[backward], position[backward])
    return np.where(part >= 0, begin[part], position)


def _is_recomputed(layout: Layout, part: Ints) -> Bools:
    """(ops,) forward ops of parts whose outputs, or what is made of them there, backward ops there read."""
    graph = layout.problem.graph
    again = np.zeros(len(graph), np.bool_)
    if part.max() < 0:
        return again
    of_phase, of_part = graph.phase[graph.edges], part[graph.edges]
    here = (of_part[:, 0] == of_part[:, 1]) & (of_part[:, 0] >= 0)
    within = here & ~graph.control & (of_phase[:, 0] == Phase.FORWARD)
    again[graph.edges[within & (of_phase[:, 1] == Phase.BACKWARD), 0]] = True
    forward = graph.edges[within & (of_phase[:, 1] == Phase.FORWARD)]
    needed = again.tolist()
    for producer, consumer in forward[np.argsort(-graph.topological_position[forward[:, 1]])].tolist():
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


def _waits(draft: Draft, reads: Reads, first: Ints, here: Bools) -> Reads:
    """What the recomputation of a part waits for: its forward pass and, unless it is early, gradients of other parts.

    It waits through one free op for each micro-batch and replica. `first` are the further copies of ops, or -1, of
    which `here`, (ops,), are in the part.
    """
    layout, members = draft.layout, np.flatnonzero(here & (first >= 0))
    one, phase = int(members[0]), layout.problem.graph.phase
    like = layout.first[one] + np.arange(layout.count[one])
    arrive = draft.add(
        len(like), Role.ARRIVE, layout.device[like], micro_batch=layout.micro_batch[like],
        replica=layout.replica[like], stage=int(layout.stage[one]),
    )  # fmt: skip
    is_forward = phase == Phase.FORWARD
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
    if layout.plan.schedule.recompute_at != "early":
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
