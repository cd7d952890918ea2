"""LastInputs: of each op the input that came last, and what it and each transfer waited for.

An op starts when its last input is there and its device is free. The later of the two is what it waited for; so it is
with transfers, which need the output that they carry and their channel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.timelines.timeline import Timeline
from graphs.cluster import FREE
from graphs.op_graph import Floats, Ints

LOCAL = -1  # the transfer of what is there without one
NONE = -1  # the op or transfer before the first


@dataclass(frozen=True, eq=False)
class LastInputs:
    """The last input of each op, (ops,) each."""

    producer: Ints  # op that made it, or NONE
    transfer: Ints  # that brought it, or LOCAL
    arrival: Floats  # seconds when it was there; 0 without inputs

    @classmethod
    def of(cls, timeline: Timeline, *, control: bool = True) -> LastInputs:
        """Those of a step; of inputs that come at the same instant, one that a transfer brings.

        Without `control`, edges that only say an order do not count.
        """
        graph, moved = timeline.graph, timeline.transfers
        devices = len(timeline.problem.cluster)
        counts = np.full(len(graph.edges), True) if control else ~graph.control
        producer, consumer = graph.edges[counts].T
        arrival, transfer = timeline.finish[producer], np.full(len(producer), LOCAL)
        apart = timeline.placement[producer] != timeline.placement[consumer]
        crosses = np.flatnonzero(~graph.control[counts] & apart)
        sent = moved.output * devices + moved.destination
        by_key = np.argsort(sent, kind="stable")
        wanted = timeline.edge_output[counts][crosses] * devices + timeline.placement[consumer[crosses]]
        transfer[crosses] = by_key[np.searchsorted(sent[by_key], wanted)]
        arrival[crosses] = moved.finish[transfer[crosses]]
        ascending = np.lexsort((transfer, arrival))  # the last one stays
        last = cls(np.full(len(graph), NONE), np.full(len(graph), LOCAL), np.zeros(len(graph)))
        for made, given in ((last.producer, producer), (last.transfer, transfer), (last.arrival, arrival)):
            made[consumer[ascending]] = given[ascending]
        return last


@dataclass(frozen=True, eq=False)
class Waits:
    """What each op and each transfer of a step waited for."""

    timeline: Timeline
    inputs: LastInputs
    data: LastInputs  # the same without what only an order asks for
    before: Ints  # (ops,) the op that its device ran before, or NONE: an op that takes no time needs no device
    sent_before: Ints  # (transfers,) the transfer that held its channel last before it began, or NONE

    @classmethod
    def of(cls, timeline: Timeline) -> Waits:
        """Those of a step."""
        last, data = LastInputs.of(timeline), LastInputs.of(timeline, control=False)
        return cls(timeline, last, data, _before(timeline), _sent_before(timeline))

    @property
    def free(self) -> Floats:
        """(ops,) seconds when the device of each had run the op before, without what holds it afterwards; 0 if none."""
        return np.where(self.before == NONE, 0.0, self.timeline.finish[self.before])

    @property
    def link_free(self) -> Floats:
        """(transfers,) seconds when the channel of each was free of the transfer before; 0 if there was none."""
        if not len(self.sent_before):
            return np.zeros(0)
        return np.where(self.sent_before == NONE, 0.0, self.timeline.transfers.finish[self.sent_before])

    def critical_path(self) -> tuple[list[int], list[int]]:
        """The ops and the transfers that the end of the step waited for, one after another, each by its start.

        From the op that ends last it goes back to what each waited for: the last input, or what its device or channel
        did before, whichever ended later.
        """
        ops, transfers = list[int](), list[int]()
        made = self.timeline.finish[self.timeline.transfers.producer]
        takes_link = self.link_free > made
        takes_device = self.free > self.inputs.arrival
        op, transfer = int(self.timeline.finish.argmax()) if len(self.before) else NONE, NONE
        while transfer != NONE or op != NONE:
            if transfer != NONE:
                transfers.append(transfer)
                op = int(self.timeline.transfers.producer[transfer])
                transfer = int(self.sent_before[transfer]) if takes_link[transfer] else NONE
                continue
            ops.append(op)
            if takes_device[op] or self.inputs.producer[op] == NONE:
                op = int(self.before[op])
            else:
                op, transfer = int(self.inputs.producer[op]), int(self.inputs.transfer[op])
        return ops[::-1], transfers[::-1]


def _before(timeline: Timeline) -> Ints:
    """(ops,) the op that the device of each ran before; NONE for ops that take no time, which need no device."""
    before = np.full(len(timeline.placement), NONE)
    ran = np.flatnonzero(timeline.finish > timeline.start)
    ran = ran[np.lexsort((timeline.start[ran], timeline.placement[ran]))]
    follows = timeline.placement[ran][1:] == timeline.placement[ran][:-1]
    before[ran[1:][follows]] = ran[:-1][follows]
    return before


def _sent_before(timeline: Timeline) -> Ints:
    """(transfers,) of those on the same channel that ended by its start, the one that ended last."""
    moved = timeline.transfers
    before = np.full(len(moved), NONE)
    for channel in np.unique(moved.channel[moved.channel != FREE]).tolist():
        mine = np.flatnonzero((moved.channel == channel) & (moved.finish > moved.start))
        mine = mine[np.argsort(moved.finish[mine], kind="stable")]
        ended = np.searchsorted(moved.finish[mine], moved.start[mine], side="right") - 1
        before[mine] = np.where(ended >= 0, mine[np.maximum(ended, 0)], NONE)
    return before
