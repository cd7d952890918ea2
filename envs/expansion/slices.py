"""Slices: parts of outputs, cut out where replicas divide the batch differently, and only those parts are sent.

    producer on 1 replica    |           0           |
                             | slice 0   | slice 1   |     on the producer's device
    consumer on 2 replicas   |     0     |     1     |

Cutting takes no time, but a slice is memory in addition to the whole output. All readers of a part read the same slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from envs.expansion.draft import Draft
from envs.expansion.expanded import Role
from graphs.algorithms.pairs import distinct_pairs
from graphs.op_graph import Floats, Ints


@dataclass(frozen=True, eq=False)
class Slices:
    """Copies of which others read a part, which is an interval of the micro-batch."""

    read: Ints  # (slices,) op of the draft
    reader: Ints  # (slices,) op of the draft
    like: Ints  # (slices,) the copy of the layout that computes the same as what is read
    begin: Ints  # (slices,) of the interval, in equal parts of a micro-batch
    end: Ints  # (slices,)
    share: Floats  # (slices,) of the batch

    @classmethod
    def together(cls, several: Sequence[Slices]) -> Slices:
        """All of them."""
        return cls(*(np.concatenate([getattr(each, key.name) for each in several]) for key in fields(cls)))


def cut(draft: Draft, slices: Slices, unit: int) -> None:
    """Cut each part once, on the device of what it is cut from; a micro-batch has `unit` equal parts."""
    interval = slices.begin * (unit + 1) + slices.end
    distinct, which = distinct_pairs(np.stack([slices.read, interval], axis=1))
    first = np.empty(len(distinct), np.int64)
    first[which[::-1]] = np.arange(len(which))[::-1]
    added = draft.add_like(slices.like[first], Role.SLICE, output_share=slices.share[first])
    draft.connect(distinct[:, 0], added)
    draft.connect(added[which], slices.reader)
