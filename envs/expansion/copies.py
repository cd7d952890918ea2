"""Copies: which copies of ops read which.

A copy on a replica computes an interval of each micro-batch, and its readers the same one or others:

    producer on 3 replicas   |     0     |     1     |     2     |
    consumer on 2 replicas   |        0        |        1        |     0 reads all of 0, and a half of 1

Replicas may have unequal shares of it, and those that take turns compute micro-batches whole. What does not grow with
the batch is the same in every copy: one is read, that on the reader's device or else on the replica that corresponds to
the reader's. Updates read the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from envs.expansion.draft import Draft
from envs.expansion.layout import Layout
from envs.expansion.reads import Reads
from envs.expansion.recompute import recomputed
from envs.expansion.slices import Slices, cut
from graphs.op_graph import Bools, Floats, Ints


def connect_copies(draft: Draft) -> None:
    """Connect copies, recomputed ones included; gradients that are summed up first are connected elsewhere."""
    layout = draft.layout
    unit = math.lcm(*map(sum, layout.divisions))
    slices: list[Slices] = []
    for reads, pattern in _patterns(layout, recomputed(draft, Reads.of(layout)), unit):
        whole = np.diff(_bounds(layout, int(reads.producer[0]), unit))[pattern.read]
        is_part = pattern.end - pattern.begin < whole
        can_be_cut = ~reads.control & np.isnan(reads.message_bytes)
        if is_part.any() and can_be_cut.any():
            _connect(draft, reads[~can_be_cut], pattern)
            _connect(draft, reads[can_be_cut], pattern.of(~is_part))
            slices.append(_slices(layout, reads[can_be_cut], pattern.of(is_part)))
        else:
            _connect(draft, reads, pattern)
    if slices:
        cut(draft, Slices.together(slices), unit)


class Pattern(NamedTuple):
    """Which copies of an op read which copies of another, where the first of each is 0."""

    read: Ints  # (pairs,) in the first micro-batch
    reader: Ints  # (pairs,)
    begin: Ints  # (pairs,) of the interval of a micro-batch that is read, in some unit
    end: Ints  # (pairs,)
    share: Floats  # (pairs,) of the batch that is read, of what grows with it
    micro_batches: Ints  # those that are read
    steps: tuple[int, int]  # copies of each end from one micro-batch to the next

    def of(self, which: Bools) -> Pattern:
        """Some of the pairs."""
        read, reader, begin, end = (column[which] for column in self[:4])
        return Pattern(read, reader, begin, end, self.share[which], self.micro_batches, self.steps)

    def copies(self, reads: Reads) -> tuple[Ints, Ints]:
        """(reads, micro-batches, pairs) copies that are read, and the copy that reads each."""
        read, reader = (
            first[:, None, None] + (self.micro_batches[:, None] * step + number)
            for first, step, number in zip((reads.read, reads.reader), self.steps, self[:2], strict=True)
        )
        return read, reader


def _patterns(layout: Layout, reads: Reads, unit: int) -> Iterator[tuple[Reads, Pattern]]:
    """Reads that follow the same pattern, and that pattern; in one set if every op has one copy."""
    producer, consumer = reads.producer, reads.consumer
    is_wide, grows = np.maximum(layout.width[producer], layout.width[consumer]) > 1, layout.grows[producer]
    by_device = is_wide & ~grows
    key = np.zeros(len(reads), np.int64)
    for column in (
        layout.division[producer], layout.division[consumer], layout.repeats[producer], layout.repeats[consumer],
        _reads_last(layout, reads), is_wide & layout.reads_all[consumer], by_device,
        by_device * layout.stage[producer], by_device * layout.stage[consumer],
    ):  # fmt: skip
        key = key * (int(column.max(initial=0)) + 1) + column
    kinds, which = np.unique(key, return_inverse=True)
    for kind in range(len(kinds)):
        alike = reads if len(kinds) == 1 else reads[which == kind]
        yield alike, _pattern(layout, alike, unit)


def _reads_last(layout: Layout, reads: Reads) -> Bools:
    """(reads,) whether what is the same for all micro-batches is read once, for all of them: of the last one."""
    at_end = layout.repeats[reads.producer] & ~layout.repeats[reads.consumer]
    return at_end & ~layout.grows[reads.producer] & ~reads.control


def _pattern(layout: Layout, reads: Reads, unit: int) -> Pattern:
    """The pattern of reads that follow the same one."""
    ends = producer, consumer = int(reads.producer[0]), int(reads.consumer[0])
    width, readers = (int(layout.width[op]) for op in ends)
    steps = tuple(int(layout.repeats[op] * layout.width[op]) for op in ends)
    micro_batches = np.arange(layout.micro_batches if any(steps) else 1)
    if _reads_last(layout, reads)[0]:
        micro_batches = micro_batches[-1:]
    if not layout.grows[producer]:
        read, reader = layout.nearest(producer, consumer), np.arange(readers)
        begin, end = np.zeros(readers, np.int64), np.full(readers, unit)
    elif layout.reads_all[consumer]:
        read, reader = np.divmod(np.arange(width * readers), readers)
        bounds = _bounds(layout, producer, unit)
        begin, end = bounds[read], bounds[read + 1]
    else:
        bounds, of_readers = (_bounds(layout, op, unit) for op in ends)
        begin = np.unique([*bounds[:-1], *of_readers[:-1]])
        end = np.append(begin[1:], unit)
        read, reader = (np.searchsorted(each, begin, side="right") - 1 for each in (bounds, of_readers))
    share = (end - begin) / (unit * layout.micro_batches)
    return Pattern(read, reader, begin, end, share, micro_batches, (steps[0], steps[1]))


def _bounds(layout: Layout, op: int, unit: int) -> Ints:
    """(copies in a micro-batch + 1,) where the interval of each copy of an op begins, of `unit` equal parts."""
    parts = np.array(layout.divisions[layout.division[op]], np.int64)
    return np.append(0, np.cumsum(parts * (unit // parts.sum())))


def _connect(draft: Draft, reads: Reads, pattern: Pattern) -> None:
    """Edges from copies to those that read all that they hold, or messages of their own."""
    read, reader = pattern.copies(reads)
    message: Floats | float = np.nan
    if not np.isnan(reads.message_bytes).all():
        share = np.where(draft.layout.grows[reads.producer][:, None, None], pattern.share, 1.0)
        message = np.broadcast_to(reads.message_bytes[:, None, None] * share, read.shape).ravel()
    control = np.broadcast_to(reads.control[:, None, None], read.shape).ravel()
    draft.connect(read.ravel(), reader.ravel(), control=control, message_bytes=message)


def _slices(layout: Layout, reads: Reads, pattern: Pattern) -> Slices:
    """What is read in part."""
    read, reader = pattern.copies(reads)
    like = read + (layout.first[reads.producer] - reads.read)[:, None, None]
    per_pair = (np.broadcast_to(values, read.shape) for values in (pattern.begin, pattern.end, pattern.share))
    return Slices(*(column.ravel() for column in (read, reader, like, *per_pair)))
