"""Stretches: consecutive ops of a device between two copies, which one CUDA graph can launch.

    order      a(0) b(1) c(0) d(1) [c to 1] e(0) f(1) g(1)          f reads c
    gpu:0      |a c| |e|
    gpu:1      |b d| |f g|

A stretch ends with an op that sends something, and begins with one that reads what was sent. Stretches are in the order
of their first ops: what the first op of one reads was sent by the last op of another, which came earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from envs.replay.ordered_ops import CopyMessage, OrderedOp
from envs.running.op_by_op import tape


@dataclass(eq=False)
class Stretch:
    """Ops of one place. One that is no graph is a single op, which is called in each step."""

    place: int
    is_graph: bool
    ops: list[OrderedOp] = field(default_factory=list)
    shared: list[int] = field(default_factory=list)
    """Slots that it fills for others: a graph for what is no graph, and what is no graph for graphs."""

    @property
    def arrivals(self) -> list[CopyMessage]:
        """What is waited for before it."""
        return self.ops[0].arrivals

    @property
    def departures(self) -> list[CopyMessage]:
        """What is sent after it."""
        return self.ops[-1].departures

    @property
    def frees(self) -> list[int]:
        """The slots that are empty once what it has made was sent."""
        return self.ops[-1].frees if self.departures else []

    def compute(self, slots: tape.Slots) -> None:
        """Call its ops."""
        sent = set(self.frees)
        for op in self.ops:
            op.compute(slots)
            for slot in op.frees:
                if slot not in sent:
                    slots[slot] = None


def stretches(ops: Iterable[OrderedOp], is_graph: Callable[[OrderedOp], bool]) -> list[Stretch]:
    """The stretches of ops in their order."""
    found, latest = list[Stretch](), dict[int, Stretch | None]()
    for op in ops:
        stretch, fits = latest.get(op.place), is_graph(op)
        if stretch is None or op.arrivals or not fits:
            stretch = Stretch(op.place, fits)
            found.append(stretch)
        stretch.ops.append(op)
        latest[op.place] = None if op.departures or not fits else stretch
    return found


def share(all_stretches: Iterable[Stretch], at_end: Collection[tuple[int, int]]) -> None:
    """Say which slots each stretch of a step shares; `at_end` are those that are read after it, by (place, slot)."""
    ordered = list(all_stretches)
    by_graphs, by_others = set[tuple[int, int]](), set(at_end)
    for stretch in ordered:
        reads = {(stretch.place, slot) for op in stretch.ops for slot in op.reads}
        sent = {(stretch.place, slot) for message in stretch.departures for slot in message.slots}
        by_graphs |= reads if stretch.is_graph else set()
        by_others |= sent if stretch.is_graph else reads
    for stretch in ordered:
        others = by_others if stretch.is_graph else by_graphs
        makes = [slot for op in stretch.ops for slot in op.makes]
        stretch.shared = [slot for slot in dict.fromkeys(makes) if (stretch.place, slot) in others]
