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

from envs.timelines.last_inputs import LOCAL, LastInputs
from envs.timelines.pass_spans import OF_PHASE, kinds_of_ops
from envs.timelines.timeline import Timeline
from graphs.op_graph import Floats

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
        for gap in np.flatnonzero(until > free).tolist():
            since, end = float(free[gap]), float(until[gap])
            if gap < len(runs):
                op = int(runs[gap])
            else:  # the end of the step, for which an op that takes no time may be left
                op = int(mine[np.argmax(timeline.finish[mine])]) if len(mine) else -1
                end = float(timeline.finish[op]) if op >= 0 else since
            waited = np.append(self._for(op, since, end), 0.0)
            if gap < len(runs):
                waited += self._after_inputs(device, max(since, float(self._arrival[op])), end)
            total[IDLE.index("transfers") :][:3] += waited
            total[IDLE.index("bubble")] += float(until[gap]) - since - waited.sum()
        return total

    def _after_inputs(self, device: int, since: float, until: float) -> Floats:
        """Seconds in which an op that has its inputs waits for transfers, for sums of gradients and for the host."""
        copied, problem = 0.0, self._timeline.problem
        if problem.runtime.streams and problem.runtime.copies == "barrier":
            start, finish = self._copies[device]
            within = slice(np.searchsorted(finish, since, side="right"), np.searchsorted(start, until))
            copied = float((np.minimum(finish[within], until) - np.maximum(start[within], since)).sum())
            since = max([since, *finish[within][-1:].tolist()])
        return np.array([copied, 0.0, 0.0 if problem.host is None else max(until - since, 0.0)])

    @cached_property
    def _copies(self) -> list[tuple[Floats, Floats]]:
        """Of each device when the copies begin and end that occupy it, which is one at a time where it is a stream."""
        moved, devices = self._timeline.transfers, range(len(self._timeline.problem.cluster))
        mine = (np.flatnonzero((moved.source == each) | (moved.destination == each)) for each in devices)
        ordered = [of[np.argsort(moved.start[of], kind="stable")] for of in mine]
        return [(moved.start[of], moved.finish[of]) for of in ordered]

    def _for(self, op: int, since: float, until: float) -> Floats:
        """Seconds from `since` until it is ready that an op waits for transfers, and for sums of gradients."""
        timeline, waited = self._timeline, np.zeros(2)
        finish, is_sum = timeline.finish, timeline.is_all_reduce
        while until > since and op >= 0 and self._producer[op] >= 0:
            producer, transfer = int(self._producer[op]), int(self._transfer[op])
            made = float(finish[producer])
            if transfer != LOCAL:
                arrived = min(until, float(timeline.transfers.finish[transfer]))
                waited[int(is_sum[transfer])] += max(arrived - max(made, since), 0.0)
            if finish[producer] > timeline.start[producer]:
                break
            op, until = producer, min(until, made)
        return waited
