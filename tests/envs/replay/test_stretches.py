"""Stretches lie between copies, and say what they share."""

from __future__ import annotations

from envs.placed_models.copies import CopyOf
from envs.replay.ordered_ops import CopyMessage, OrderedOp
from envs.replay.stretches import share, stretches


def op_of(
    op: int, place: int, *, reads: tuple[int, ...] = (), arrives: bool = False, leaves: bool = False
) -> OrderedOp:
    """One that makes the slot of its own number."""
    message = [CopyMessage(op, (op,), 0, CopyOf.OUTPUT, None)]
    arrivals, departures = message if arrives else [], message if leaves else []
    return OrderedOp(op, op, place, lambda _: None, arrivals, departures, reads, (op,), [])


def test_stretches_lie_between_copies() -> None:
    """The example of the module, and one op that is in no graph."""
    ops = [op_of(0, 0), op_of(1, 1), op_of(2, 0, leaves=True), op_of(3, 1), op_of(4, 0), op_of(5, 1, arrives=True)]
    ops += [op_of(6, 1), op_of(7, 1), op_of(8, 1)]
    found = [(each.place, [op.op for op in each.ops]) for each in stretches(ops, lambda op: op.op != 7)]
    assert found == [(0, [0, 2]), (1, [1, 3]), (0, [4]), (1, [5, 6]), (1, [7]), (1, [8])]


def test_graphs_fill_the_slots_of_what_is_none_and_what_is_none_those_of_graphs() -> None:
    ops = [op_of(0, 0), op_of(1, 0), op_of(2, 0, reads=(0,)), op_of(3, 0, reads=(1, 2)), op_of(4, 0, leaves=True)]
    ops += [op_of(5, 1, reads=(1,)), op_of(6, 0)]
    found = stretches(ops, lambda op: op.op != 2)
    share(found, {(0, 3)})
    assert [([op.op for op in each.ops], each.shared) for each in found] == [
        ([0, 1], [0]), ([2], [2]), ([3, 4], [3, 4]), ([5], []), ([6], [])
    ]  # fmt: skip
