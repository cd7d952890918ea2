"""What a step's chart shows: lanes of devices and links, boxes in them, and why each began no earlier.

A box is an op, a transfer or, of a plan that is no op placement, a pass (`envs.timelines.pass_spans`). Where a lane has
too many to be told apart, neighbours of one kind become one box, which says how many they are and how busy it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from envs.timelines.last_inputs import LOCAL, NONE, Waits
from envs.timelines.pass_spans import PassSpans, SpanKind
from envs.timelines.timeline import Timeline
from graphs.op_graph import Bools, Floats, Ints, Phase

MOST_BOXES = 24_000  # in a chart: bounds its size
LINKS = 16  # lanes: the busiest
PALEST = 0.25  # of a box, so that it is seen
SLACK = 1e-9  # of the step: times that differ by less are equal


class Reason(IntEnum):
    """Why a box began no earlier."""

    NONE = 0  # it waited for nothing
    INPUT = 1  # its device was idle until an input was made on it
    TRANSFER = 2  # its device was idle until an input arrived
    DEVICE = 3  # its inputs were there, its device was busy with another
    LINK = 4  # its output was made, the link was busy with another transfer
    HELD = 5  # its device or link was held, by a launch or a message

    @property
    def sentence(self) -> str:
        """In words: {waited} is for how long, {awaited} the op that it waited for, {where} the device of that."""
        return _SENTENCES[self]


_SENTENCES = {
    Reason.NONE: "did not wait",
    Reason.INPUT: "idle for {waited}, until an input was made: {awaited}{where}",
    Reason.TRANSFER: "idle for {waited}, until an input arrived: {awaited}{where}",
    Reason.DEVICE: "was ready {waited} earlier; the device was busy: {awaited}",
    Reason.LINK: "was ready {waited} earlier; the link was busy with the output of {awaited}",
    Reason.HELD: "was ready {waited} earlier; held by a launch or a message",
}


@dataclass(eq=False)
class Boxes:
    """Boxes of a lane or of several, (boxes,) each."""

    lane: Ints  # of `StepLanes.lanes`
    kind: Ints  # of `StepLanes.kinds`
    start: Floats  # seconds
    finish: Floats  # seconds
    op: Ints  # op or, of a transfer, the op whose output it carries; of several the longest
    count: Ints  # ops, or transfers, in it
    busy: Floats  # seconds of it in which one of them runs
    bytes: Floats  # of outputs, or carried
    reason: Ints  # a Reason
    waited: Floats  # seconds
    awaited: Ints  # op that it waited for, or NONE
    critical: Bools  # whether it is on the critical path
    label: Ints  # of `StepLanes.labels`, or -1

    def __len__(self) -> int:
        return len(self.lane)

    def of(self, which: Ints | Bools) -> Boxes:
        """Some of them."""
        return Boxes(**{name: column[which] for name, column in vars(self).items()})


@dataclass(frozen=True)
class Lane:
    """A line of the chart."""

    label: str
    device: int  # NONE for a link


@dataclass(frozen=True, eq=False)
class StepLanes:
    """A step as lanes and boxes. Devices that do and hold nothing have no lane."""

    timeline: Timeline
    lanes: tuple[Lane, ...]
    boxes: Boxes
    kinds: tuple[str, ...]
    labels: tuple[str, ...] = field(default=())  # of passes
    pass_of: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # (ops,) the label of each, or NONE

    @classmethod
    def of(cls, timeline: Timeline, most: int = MOST_BOXES) -> StepLanes:
        """The lanes of a step, of at most about `most` boxes."""
        waits = Waits.of(timeline)
        path = waits.critical_path()
        devices = _used(timeline)
        links = sorted(timeline.by_link(), key=lambda link: -_total(timeline, link[1]))[:LINKS]
        links = [link for link in links if _total(timeline, link[1]) > 0]
        lanes = [Lane(timeline.problem.cluster.devices[each].name, each) for each in devices]
        lanes += [Lane(name, NONE) for name, _ in links]
        passes = timeline.passes
        kinds = [phase.name.lower() for phase in Phase] if passes is None else [kind.words for kind in SpanKind]
        kinds += ["transfer", "all-reduce"]
        work = _of_ops(timeline, waits, path[0]) if passes is None else _of_passes(timeline, waits, passes, path[0])
        carried = _of_transfers(timeline, waits, path[1], first_kind=len(kinds) - 2)
        found = [_of_lane(work, work.lane == device, lane) for lane, device in enumerate(devices)]
        moves = carried.finish > carried.start
        for lane, (_, mine) in enumerate(links, start=len(devices)):
            found.append(_of_lane(carried, mine[moves[mine]], lane))
        boxes = _joined([_fewer(each, timeline.step_seconds, most // max(len(found), 1)) for each in found])
        labels = () if passes is None else tuple(passes.labels)
        pass_of = np.zeros(0, np.int64) if passes is None else _pass_of(timeline, passes)
        return cls(timeline, tuple(lanes), boxes, tuple(kinds), labels, pass_of)

    @property
    def later(self) -> Floats:
        """(boxes,) 0 for passes of the first stage of a device to 1 for its last; 0 where it has one."""
        passes, label = self.timeline.passes, self.boxes.label
        return np.zeros(len(label)) if passes is None else np.where(label >= 0, passes.later[np.maximum(label, 0)], 0.0)

    @property
    def filled(self) -> Floats:
        """(boxes,) the share of each in which one of its ops runs, as far as it can be seen; 1 for passes."""
        if self.labels:
            return np.ones(len(self.boxes))
        return np.clip(self.boxes.busy / (self.boxes.finish - self.boxes.start), PALEST, 1.0)

    def idle(self) -> Iterator[tuple[int, Floats]]:
        """Each lane of a device with the spans, (spans, 2) seconds, in which it does nothing."""
        step, boxes = self.timeline.step_seconds, self.boxes
        for lane, each in enumerate(self.lanes):
            if each.device != NONE:
                mine = boxes.of(boxes.lane == lane)
                order = np.argsort(mine.start, kind="stable")
                begin = np.concatenate([[0.0], np.maximum.accumulate(mine.finish[order])])
                spans = np.stack([begin, np.append(mine.start[order], step)], axis=1)
                yield lane, spans[spans[:, 1] - spans[:, 0] > max(SLACK, 2e-4) * step]


def _used(timeline: Timeline) -> list[int]:
    """The devices that run or hold something."""
    runs = np.bincount(timeline.placement, minlength=len(timeline.problem.cluster)) > 0
    return np.flatnonzero(runs | (timeline.peak_bytes > 0)).tolist()


def _total(timeline: Timeline, transfers: Ints) -> float:
    return float((timeline.transfers.finish - timeline.transfers.start)[transfers].sum())


def _marked(size: int, which: list[int]) -> Bools:
    marked = np.zeros(size, np.bool_)
    marked[which] = True
    return marked


def why_not_earlier(timeline: Timeline, waits: Waits) -> tuple[Ints, Floats, Ints]:
    """Of each op the reason why it began no earlier, for how long that was, and the op that it waited for."""
    slack, free, start = SLACK * timeline.step_seconds, waits.free, timeline.start
    producer, transfer = _through_free_ops(timeline, waits)
    arrival, ready = waits.inputs.arrival, waits.data.arrival
    by_input = np.where(transfer != LOCAL, Reason.TRANSFER, Reason.INPUT)
    is_late = arrival > free + slack
    is_busy = (free > ready + slack) & (start > ready + slack)
    is_held = np.maximum(free, arrival) + slack < start
    reason = np.select([is_late, is_busy, is_held], [by_input, Reason.DEVICE, Reason.HELD], Reason.NONE)
    waited = np.select([reason == Reason.DEVICE, reason != Reason.NONE], [start - ready, start - free], 0.0)
    awaited = np.select([is_late, reason == Reason.DEVICE], [producer, waits.before], NONE)
    return reason, waited, awaited


def _through_free_ops(timeline: Timeline, waits: Waits) -> tuple[Ints, Ints]:
    """(ops,) the producer of the last input, and its transfer; of a producer that takes no time, its own instead."""
    producer, transfer = waits.inputs.producer.copy(), waits.inputs.transfer.copy()
    is_free = (timeline.finish <= timeline.start) & (waits.inputs.producer != NONE)
    for _ in range(len(producer)):
        goes_on = np.flatnonzero((producer != NONE) & (transfer == LOCAL) & is_free[producer])
        if not len(goes_on):
            break
        last = producer[goes_on]
        producer[goes_on], transfer[goes_on] = waits.inputs.producer[last], waits.inputs.transfer[last]
    return producer, transfer


def _of_ops(timeline: Timeline, waits: Waits, path: list[int]) -> Boxes:
    ran = np.flatnonzero(timeline.finish > timeline.start)
    reason, waited, awaited = why_not_earlier(timeline, waits)
    graph, ones = timeline.problem.graph, np.ones(len(ran), np.int64)
    return Boxes(
        timeline.placement[ran], graph.phase[ran], timeline.start[ran], timeline.finish[ran], ran, ones,
        timeline.finish[ran] - timeline.start[ran], graph.output_bytes[ran], reason[ran], waited[ran], awaited[ran],
        _marked(len(graph), path)[ran], -ones,
    )  # fmt: skip


def _pass_of(timeline: Timeline, passes: PassSpans) -> Ints:
    """(ops,) the span of each; NONE for what takes no time."""
    pass_of = np.full(len(timeline.placement), NONE)
    ran = timeline.finish > timeline.start
    for device in range(len(timeline.problem.cluster)):
        spans, mine = np.flatnonzero(passes.device == device), np.flatnonzero(ran & (timeline.placement == device))
        pass_of[mine] = spans[np.searchsorted(passes.start[spans], timeline.start[mine], side="right") - 1]
    return pass_of


def _of_passes(timeline: Timeline, waits: Waits, passes: PassSpans, path: list[int]) -> Boxes:
    """Passes; each waited for what its first op waited for, and is called after its longest."""
    ops = _of_ops(timeline, waits, path)
    owner = _pass_of(timeline, passes)[ops.op]
    order = np.lexsort((ops.start, owner))
    boxes = _grouped(ops.of(order), owner[order])
    boxes.kind, boxes.start, boxes.finish = passes.kind, passes.start, passes.finish
    boxes.label = np.arange(len(passes))
    return boxes


def _of_transfers(timeline: Timeline, waits: Waits, path: list[int], first_kind: int) -> Boxes:
    moved, slack = timeline.transfers, SLACK * timeline.step_seconds
    made, free = timeline.finish[moved.producer], waits.link_free
    waited = np.maximum(moved.start - made, 0.0)
    reason = np.select([waited <= slack, free > made + slack], [Reason.NONE, Reason.LINK], Reason.HELD)
    last = waits.sent_before
    awaited = np.where(reason == Reason.LINK, moved.producer[last], NONE) if len(moved) else last
    return Boxes(
        moved.source, first_kind + timeline.is_all_reduce, moved.start, moved.finish, moved.producer,
        np.ones(len(moved), np.int64), moved.finish - moved.start, timeline.graph.moved_bytes[moved.output],
        reason, np.where(reason == Reason.NONE, 0.0, waited), awaited, _marked(len(moved), path),
        np.full(len(moved), -1),
    )  # fmt: skip


def _of_lane(boxes: Boxes, which: Ints | Bools, lane: int) -> Boxes:
    mine = boxes.of(which)
    mine.lane = np.full(len(mine), lane)
    return mine


def _fewer(boxes: Boxes, step_seconds: float, most: int) -> Boxes:
    """The boxes of a lane; if they are more than that, short ones of one kind that begin together are one."""
    if len(boxes) <= most:
        return boxes
    boxes = boxes.of(np.argsort(boxes.start, kind="stable"))
    width = 4 * step_seconds / max(most, 1)
    slot = np.floor(boxes.start / width).astype(np.int64)
    is_long = boxes.finish - boxes.start > width
    breaks = is_long[1:] | is_long[:-1] | (slot[1:] != slot[:-1]) | (boxes.kind[1:] != boxes.kind[:-1])
    owner = np.concatenate([[0], np.cumsum(breaks)])
    runs = int(owner[-1]) + 1
    if runs > 2 * most:  # kinds take turns: each slice of the step becomes one box per kind
        owner = np.unique(np.stack([slot, boxes.kind, is_long * np.arange(len(boxes))]), axis=1, return_inverse=True)[1]
        boxes = boxes.of(np.argsort(owner, kind="stable"))
        owner = np.sort(owner)
    return _grouped(boxes, owner)


def _grouped(boxes: Boxes, owner: Ints) -> Boxes:
    """One box of all neighbours with one owner, (boxes,) ascending; it waited for what the first one did."""
    first = np.unique(owner, return_index=True)[1]
    longest = np.lexsort((boxes.finish - boxes.start, owner))
    grouped = boxes.of(first)
    grouped.finish = np.maximum.reduceat(boxes.finish, first) if len(first) else grouped.finish
    grouped.op = boxes.op[longest[np.append(first[1:], len(boxes)) - 1]]
    for name in ("count", "busy", "bytes"):
        setattr(grouped, name, np.add.reduceat(getattr(boxes, name), first) if len(first) else getattr(grouped, name))
    grouped.critical = np.logical_or.reduceat(boxes.critical, first) if len(first) else grouped.critical
    return grouped


def _joined(several: list[Boxes]) -> Boxes:
    names = list(Boxes.__dataclass_fields__)
    empty = {name: np.zeros(0, np.int64) for name in names}
    if not several:
        return Boxes(**empty)  # type: ignore[arg-type]
    return Boxes(**{name: np.concatenate([getattr(each, name) for each in several]) for name in names})
