"""StepShares: what each device spends a step on, and what it waits for while it is idle.

A device works on a pass, is held after an op (by its launch, and by what runs it), is held by messages, or is idle.
What messages take counts as *transfers*. While a device is idle it waits for its next op, and each instant belongs to
what it then waits for:

- Of the next op's inputs the one that comes last counts. If it was made on another device, the op waits for a transfer
  from the end of its producer, when the transfer is queued, to its arrival. It waits for the *all-reduce* if that
  transfer carries sums of gradients, and else for *transfers*.
- If the producer takes no time, such as a slice or a step of an all-reduce, what it waited for counts in the same way.
- When its inputs are there, an op that a *host* issues waits for that. Where devices are streams it may wait for copies
  that were issued before it and occupy its device, which count as transfers, and so before them as a bubble.
- Everything before that is *bubble*: the device waits although nothing that it needs is on its way, since another one
  computes it. So does a device that has run its last op, until the step ends.

The shares of a device add up to the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.timelines.last_inputs import LOCAL, NONE, LastInputs
from envs.timelines.pass_spans import OF_PHASE, kinds_of_ops
from envs.timelines.timeline import Timeline
from graphs.op_graph import Floats, Ints

WORK = ("forward", "backward", "recomputation", "update")
IDLE = ("launch", "transfers", "all_reduce", "host", "bubble")
SHARES = (*WORK, *IDLE)

# (kinds of spans,) the share that each counts as
_SHARE_OF_KIND = np.array(
    [WORK.index(name) for name in ("forward", "backward", "backward", "backward", "recomputation", "update")]
)


@dataclass(frozen=True, eq=False)
class StepShares:
    """Seconds of a step by device and by what they are spent on."""

    seconds: Floats  # (devices, SHARES)

    @classmethod
    def of(cls, timeline: Timeline) -> StepShares:
        """The shares of a simulated step."""
        cluster = timeline.problem.cluster
        seconds = np.zeros((len(cluster), len(SHARES)))
        kinds = (
            OF_PHASE[timeline.problem.graph.phase] if timeline.expansion is None else kinds_of_ops(timeline.expansion)
        )
        np.add.at(seconds, (timeline.placement, _SHARE_OF_KIND[kinds]), timeline.finish - timeline.start)
        waits = _Waits(timeline)
        for device, hold_seconds in enumerate(timeline.problem.hold_seconds.tolist()):
            seconds[device, len(WORK) :] = waits.on(device, hold_seconds)
        return cls(seconds)

    def __getitem__(self, share: str) -> Floats:
        """(devices,) seconds of one of the `SHARES`."""
        return self.seconds[:, SHARES.index(share)]

    def by_name(self, devices: Sequence[str]) -> dict[str, dict[str, float]]:
        """Seconds by device, each of which has the name given, and by share."""
        rows = zip(devices, self.seconds.tolist(), strict=True)
        return {device: dict(zip(SHARES, seconds, strict=True)) for device, seconds in rows}

    @property
    def idle(self) -> Floats:
        """(devices,) seconds in which a device neither computes nor is held after an op."""
        return self["transfers"] + self["all_reduce"] + self["host"] + self["bubble"]


def message_holds(timeline: Timeline) -> list[tuple[Floats, Floats]]:
    """Of each device the messages that it sends and receives: when they are made or arrive, and how long they hold it.

    Both (messages,), in seconds. A multicast transfer is one message for its sender.
    """
    cluster, moved = timeline.problem.cluster, timeline.transfers
    is_own = ~np.append(cluster.multicast, False)[moved.channel]  # FREE is the last
    label = np.where(is_own, moved.destination, -1)
    first = np.unique(np.stack([moved.output, moved.channel, label]), axis=1, return_index=True)[1]
    device = np.concatenate([moved.source[first], moved.destination])
    at = np.concatenate([timeline.finish[moved.producer[first]], moved.finish])
    size = timeline.graph.moved_bytes[np.concatenate([moved.output[first], moved.output])]
    held = cluster.message_seconds[device] + size * cluster.message_seconds_per_byte[device]
    return [(at[device == each], held[device == each]) for each in range(len(cluster))]


class _Waits:
    """What ops wait for: of each the last input, and how it came."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        last = LastInputs.of(timeline)
        self._producer, self._transfer, self._arrival = last.producer, last.transfer, last.arrival
        self._messages = message_holds(timeline)

    def on(self, device: int, hold_seconds: float) -> Floats:
        """(IDLE,) seconds that a device spends on each."""
        timeline = self._timeline
        mine = np.flatnonzero(timeline.placement == device)
        runs = mine[timeline.finish[mine] > timeline.start[mine]]
        runs = runs[np.argsort(timeline.start[runs], kind="stable")]
        step = timeline.step_seconds
        begin = np.concatenate([[0.0], timeline.finish[runs]])
        until = np.maximum(np.concatenate([timeline.start[runs], [step]]), begin)
        free = np.minimum(begin + hold_seconds, until)
        free[0] = 0.0  # nothing was launched before
        total = np.zeros(len(IDLE))
        total[IDLE.index("launch")] = (free - begin).sum()
        at, held = self._messages[device]
        after = np.searchsorted(timeline.start[runs], at, side="right")  # its hold is over before the next op starts
        messages = np.minimum(np.bincount(after, held, minlength=len(begin)), until - free)
        total[IDLE.index("transfers")] = messages.sum()
        free = free + messages  # wherever in a gap they are: what the next op waits for keeps its seconds
        gaps = np.flatnonzero(until > free)
        since, until = free[gaps], until[gaps]
        # at the end of the step there is no next op, but one that takes no time may be left
        op = np.append(runs, mine[np.argmax(timeline.finish[mine])] if len(mine) else NONE)[gaps]
        is_next = gaps < len(runs)
        end = np.where(is_next, until, timeline.finish[op] if len(mine) else since)
        waited = np.zeros((3, len(gaps)))
        waited[:2] = self._for(op, since, end)
        waited[::2] += np.where(is_next, self._after_inputs(device, np.maximum(since, self._arrival[op]), end), 0.0)
        total[IDLE.index("transfers") :][:3] += waited.sum(axis=1)
        total[IDLE.index("bubble")] = (until - since).sum() - waited.sum()
        return total

    def _after_inputs(self, device: int, since: Floats, until: Floats) -> Floats:
        """(2, ops) seconds in which ops that have their inputs wait for transfers, and for the host."""
        waited, problem = np.zeros((2, len(since))), self._timeline.problem
        if problem.runtime.streams and problem.runtime.copies == "barrier":
            start, finish = self._copies[device]
            first, end = np.searchsorted(finish, since, side="right"), np.searchsorted(start, until)
            some = np.flatnonzero(end > first)
            first, last, took = first[some], end[some] - 1, np.append(0.0, np.cumsum(finish - start))
            outside = np.maximum(since[some] - start[first], 0.0) + np.maximum(finish[last] - until[some], 0.0)
            waited[0, some] = took[last + 1] - took[first] - outside
            since = since.copy()
            since[some] = np.maximum(since[some], finish[last])
        if problem.host is not None:
            waited[1] = np.maximum(until - since, 0.0)
        return waited

    @cached_property
    def _copies(self) -> list[tuple[Floats, Floats]]:
        """Of each device when the copies begin and end that occupy it, which is one at a time where it is a stream."""
        moved, devices = self._timeline.transfers, range(len(self._timeline.problem.cluster))
        mine = (np.flatnonzero((moved.source == each) | (moved.destination == each)) for each in devices)
        ordered = [of[np.argsort(moved.start[of], kind="stable")] for of in mine]
        return [(moved.start[of], moved.finish[of]) for of in ordered]

    def _for(self, op: Ints, since: Floats, until: Floats) -> Floats:
        """(2, ops) seconds from `since` until they are ready that ops wait for transfers, and for sums of gradients."""
        timeline, waited = self._timeline, np.zeros((2, len(op)))
        is_sum, arrival = timeline.is_all_reduce.astype(np.int64), timeline.transfers.finish
        op, until, left = op.copy(), until.copy(), np.arange(len(op))
        while len(left := left[(until > since)[left] & (op[left] != NONE) & (self._producer[op[left]] != NONE)]):
            producer, transfer = self._producer[op[left]], self._transfer[op[left]]
            made = timeline.finish[producer]
            is_sent = transfer != LOCAL
            sent, by = left[is_sent], transfer[is_sent]
            arrived = np.minimum(until[sent], arrival[by])
            waited[is_sum[by], sent] += np.maximum(arrived - np.maximum(made[is_sent], since[sent]), 0.0)
            op[left], until[left] = producer, np.minimum(until[left], made)
            left = left[made <= timeline.start[producer]]  # it took no time: what it waited for counts as well
        return waited
