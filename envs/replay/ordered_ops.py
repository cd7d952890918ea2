"""OrderedOp: an op of a captured step in the order of a plan, and what is copied before and after it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from envs.placed_models.copies import CopyOf
from envs.running.op_by_op import tape
from graphs.op_graph import Call


class CopyMessage(NamedTuple):
    """Tensors that go to a place together."""

    key: Hashable
    slots: tuple[int, ...]  # of the source or, where it arrives, of the destination
    destination: int
    of: CopyOf
    call: Call | None


@dataclass
class OrderedOp:
    """What arrives before an op is computed, and what is sent or freed after it."""

    op: int
    forward: int  # the forward op that it belongs to, or is
    place: int
    compute: tape.Compute
    arrivals: list[CopyMessage]
    departures: list[CopyMessage]
    reads: Sequence[int]  # slots, those of departures among them
    makes: Sequence[int]  # slots, those of arrivals among them
    frees: list[int]
