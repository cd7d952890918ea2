"""Passes: control edges by which every device runs the passes of its stages in the plan's order.

    pass k of a device       pass k + 1
    ... sink  --.         .-- source ...     sinks are what no op of the pass reads, sources read no op of the pass
    ... sink  ---  gate  ---- source ...     a gate, which takes no time, where it saves edges

An op that is computed again belongs to the backward pass, or to its first part. The updates of a micro-batch belong to
its backward pass, or to the second part, unless they wait for other devices.
"""

import numpy as np

from envs.expansion.deadlock import check_ends
from envs.expansion.draft import Draft
from envs.expansion.expanded import Role
from envs.expansion.parcels import send_at_end
from envs.expansion.pass_lists import PassLists
from envs.plans.schedule import AS_READY
from graphs.op_graph import Bools, Ints, Phase


def order_passes(draft: Draft) -> PassLists | None:
    """Let devices run passes one after the other, by the schedule's order, and return them; `AS_READY` has none.

    Raises InputError as `PassLists.of`, and for an order under which devices wait for each other.
    """
    layout = draft.layout
    if layout.plan.schedule.order == AS_READY:
        return None
    lists = PassLists.of(layout)
    number = _pass_of_ops(draft, lists)
    is_source, is_sink = _ends(draft.edges, number)
    _connect(draft, lists, number, np.flatnonzero(is_source), np.flatnonzero(is_sink))
    if layout.problem.runtime.sends_at_end:
        send_at_end(draft, lists, number, np.flatnonzero(is_sink))
    check_ends(draft, lists, number)
    return lists


def _pass_of_ops(draft: Draft, lists: PassLists) -> Ints:
    """(ops,) the number of the pass that each op of the draft belongs to, or -1: steps of transfers belong to none.

    Nor do updates that wait for the gradients of other replicas, which take turns, and new values of weights that come
    from other stages: passes would stop for those of other devices.
    """
    role, origin, device, stage, micro_batch = map(draft.column, ("role", "origin", "device", "stage", "micro_batch"))
    phase = draft.layout.problem.graph.phase
    waits = (phase == Phase.REFRESH) | (draft.layout.takes_turns & (phase == Phase.UPDATE))
    kind = lists.kind_of_copies(role, origin, stage, micro_batch)
    these = np.flatnonzero((kind >= 0) & ((origin < 0) | ~waits[origin]))
    number = np.full(draft.ops, -1)
    number[these] = lists.number_of(device[these], stage[these], kind[these], micro_batch[these])
    return number


def _ends(edges: Ints, number: Ints) -> tuple[Bools, Bools]:
    """(ops,) whether each is a source of its pass, and whether each is a sink. `number` is the pass of each."""
    producer, consumer = edges.T
    within = number[producer] == number[consumer]
    is_source, is_sink = number >= 0, number >= 0
    is_source[consumer[within]] = False
    is_sink[producer[within]] = False
    return is_source, is_sink


def _connect(draft: Draft, lists: PassLists, number: Ints, sources: Ints, sinks: Ints) -> None:
    """Edges, or gates, from the sinks of each pass to the sources of the next on its device."""
    count = len(lists)
    sources = sources[np.argsort(number[sources], kind="stable")]
    many_sources = np.bincount(number[sources], minlength=count + 1)
    many_sinks = np.bincount(number[sinks], minlength=count)
    following = np.where(np.append(lists.device[1:] == lists.device[:-1], False), many_sources[1:], 0)  # (passes,)
    is_gated = many_sinks * following > many_sinks + following
    first = np.cumsum(many_sources) - many_sources  # of the sources of each pass
    # direct edges: each sink with each source of the next pass
    direct = sinks[~is_gated[number[sinks]]]
    each = following[number[direct]]
    within = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    draft.connect(np.repeat(direct, each), sources[np.repeat(first[number[direct] + 1], each) + within], control=True)
    gated = np.flatnonzero(is_gated)
    if len(gated):
        gate = np.zeros(count + 1, np.int64)
        gate[gated] = draft.add(
            len(gated), Role.GATE, lists.device[gated], micro_batch=lists.micro_batch[gated + 1],
            stage=lists.stage[gated + 1],
        )  # fmt: skip
        into, out = sinks[is_gated[number[sinks]]], sources[np.append(False, is_gated)[number[sources]]]
        draft.connect(into, gate[number[into]], control=True)
        draft.connect(gate[number[out] - 1], out, control=True)
