"""All-reduces of an expanded plan, found again among the sends and sums that they were written as.

device 0   gate -> send -> send -> sum -> update        one all-reduce, of members 0 and 1: both sends and the sum
device 1   gate -> send -> send -> sum -> update        of each

Those of kind `nccl` have three sums of each member, and the sends in between from one member or another.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np

from envs.expansion.expanded import Role
from envs.expansion.layout import Layout
from envs.timelines.timeline import Timeline
from graphs.algorithms.components import connected_components
from graphs.op_graph import Bools, Ints


class AllReduce(NamedTuple):
    """Its ops, and what is summed up."""

    ops: frozenset[int]
    sum_of: dict[int, int]  # by device the op that ends when the sum is there
    bytes: float  # of what is summed up


def all_reduces(timeline: Timeline) -> list[AllReduce]:
    """Those whose members each have as many sends, and as many sums, of which others wait for the last one alone.

    What else is sent and added up, as by shards of divided ops or to another stage, does not count; nor do the
    reduce-scatters and all-gathers of a stage of ZeRO.
    """
    expansion, graph = timeline.expansion, timeline.problem.graph
    if expansion is None or expansion.plan.schedule.zero:
        return []
    by_nccl = Layout(expansion.given, expansion.plan).all_reduce == "nccl"
    is_step = np.isin(expansion.role, (Role.SEND, Role.SUM))
    inside = graph.edges[is_step[graph.edges].all(axis=1)]
    component = connected_components(inside, len(graph))
    moved, found = timeline.transfers, []
    sent = np.zeros(len(graph))  # (components,) bytes
    np.add.at(sent, component[moved.producer], graph.moved_bytes[moved.output])
    steps = np.flatnonzero(is_step)
    for number in np.unique(component[steps[expansion.role[steps] == Role.SEND]]).tolist():
        mine = component == number
        ops = np.flatnonzero(mine)
        sums, sends = (ops[expansion.role[ops] == role] for role in (Role.SUM, Role.SEND))
        sums = sums[np.argsort(graph.topological_position[sums])]
        last = dict(zip(timeline.placement[sums].tolist(), sums.tolist(), strict=True))  # by member
        counts = [Counter(timeline.placement[each].tolist()) for each in (sums, sends)]
        is_even = all(each == dict.fromkeys(last, max(each.values())) for each in counts)
        is_nccl = by_nccl and counts[0] == dict.fromkeys(last, 3)
        if len(last) > 1 and (is_even or is_nccl) and _is_closed(timeline, mine, [*last.values()]):
            total = float(sent[number]) / (2 * (len(last) - 1))
            found.append(AllReduce(frozenset(ops.tolist()), last, total))
    return found


def _is_closed(timeline: Timeline, mine: Bools, last: list[int]) -> bool:
    """Whether these ops, (ops,), read nothing of others, and others wait for the last sums alone."""
    graph = timeline.problem.graph
    producer, consumer = graph.edges.T
    enters, leaves = mine[consumer] & ~mine[producer], mine[producer] & ~mine[consumer]
    crossing = enters | leaves
    at: Ints = timeline.placement
    is_fine = graph.control[crossing] & (at[producer[crossing]] == at[consumer[crossing]])
    return bool(is_fine.all()) and bool(np.isin(producer[leaves], last).all())
