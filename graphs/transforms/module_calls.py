"""Calls of modules: which ops run in one call of a part of a model, as far as the calls of its code tell.

    module of each call   a, a.x, a, a.x, b, a      calls of modules   a (twice a.x), b, a

Those of one module that follow one another are taken to be of one call of it, in which a part is called several times.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from graphs.foundation.per_object import once_per_object
from graphs.op_graph import Bools, Ints, OpGraph, Phase

ENTERING = 3  # calls that take a plan as long as to enter a module that runs whole
FEWEST = ENTERING  # ops in a call of a module, which is no call here otherwise


@dataclass(frozen=True, eq=False)
class ModuleCalls:
    """Numbered, each after the one that it is part of; the first is that of the model."""

    outer: Ints  # (calls,) the one that each is part of; of the first itself
    paths: tuple[str, ...]  # (calls,) of the modules
    of_op: Ints  # (ops,) the innermost in which each forward op runs; -1 for other ops
    times: Ints  # (calls,) how often the module is called, as far as that is known
    reads: Ints  # (reads, 2) a call, and the op that updates a weight which is read there, by another op

    @staticmethod
    @once_per_object
    def of(graph: OpGraph) -> ModuleCalls:
        """The calls of a graph, of some ops each. What it knows no call of is the model's own."""
        outer, paths, of_op = _visited(graph)
        own = np.bincount(of_op[of_op >= 0], minlength=len(outer))
        parts = [Counter[str]() for _ in outer]
        sizes = own.copy()
        for each in range(len(outer) - 1, 0, -1):
            parts[outer[each]][paths[each]] += 1
            sizes[outer[each]] += sizes[each]
        nested = {up for each, up in enumerate(outer) if each and sizes[each] > 1}
        times = [
            # a module that calls nothing itself may be a list of modules, which are called
            max(inside.values(), default=1) if calls or each not in nested else inside.total()
            for each, (inside, calls) in enumerate(zip(parts, own.tolist(), strict=True))
        ]
        is_kept = sizes >= FEWEST
        is_kept[0] = True
        number, kept = np.cumsum(is_kept) - 1, np.flatnonzero(is_kept)
        for each in np.flatnonzero(~is_kept).tolist():
            number[each] = number[outer[each]]
        of_op[of_op >= 0] = number[of_op[of_op >= 0]]
        names = tuple(paths[each] for each in kept.tolist())
        return ModuleCalls(number[np.array(outer)[kept]], names, of_op, np.array(times)[kept], _reads(graph, of_op))

    def first(self, timed: Bools) -> Ints:
        """(calls,) the first op in each of those that take time, (ops,), or else the last op of all."""
        ops = np.flatnonzero(self.of_op >= 0)
        found = np.full(len(self.outer), len(timed) - 1)
        np.minimum.at(found, self.of_op[ops], np.where(timed[ops], ops, len(timed) - 1))
        for each in range(len(found) - 1, 0, -1):
            found[self.outer[each]] = min(found[self.outer[each]], found[each])
        return found

    def mixed(self, placement: Ints, seen_ops: Ints) -> Bools:
        """(calls,) those that do not run whole, as the model: not all ops, (ops,), and weights are on one device.

        Nor do those in which `seen_ops` are, some ops.
        """
        found: Bools = np.arange(len(self.outer)) == np.zeros(len(self.outer))
        found[self.of_op[seen_ops]] = True
        ops = np.flatnonzero(self.of_op >= 0)
        needs = np.concatenate([np.column_stack([self.of_op[ops], ops]), self.reads])
        least, most = np.full(len(found), placement.max()), np.zeros(len(found), np.int64)
        np.minimum.at(least, needs[:, 0], placement[needs[:, 1]])
        np.maximum.at(most, needs[:, 0], placement[needs[:, 1]])
        for each in range(len(found) - 1, 0, -1):
            outer = self.outer[each]
            least[outer], most[outer] = min(least[outer], least[each]), max(most[outer], most[each])
            found[each] |= least[each] != most[each]
            found[outer] |= found[each]
        return found


def _visited(graph: OpGraph) -> tuple[list[int], list[str], Ints]:
    """(calls,) the outer ones and the paths of all calls of modules, and (ops,) the innermost of each forward op."""
    forward, found = np.flatnonzero(graph.phase == Phase.FORWARD), list[int]()
    outer, paths, stack, last = [0], [""], [("", 0)], ""
    for op in forward.tolist():
        call = graph.calls[op] if graph.calls else None
        if call is None:
            found.append(0)
            continue
        if call.module == last:  # as of most ops: nothing is entered or left
            found.append(stack[-1][1])
            continue
        last = call.module
        names = last.split(".") if last else []
        shared = 0
        while shared < min(len(names), len(stack) - 1) and stack[shared + 1][0] == names[shared]:
            shared += 1
        del stack[shared + 1 :]
        for depth, name in enumerate(names[shared:], shared + 1):
            outer.append(stack[-1][1])
            paths.append(".".join(names[:depth]))
            stack.append((name, len(outer) - 1))
        found.append(stack[-1][1])
    of_op = np.full(len(graph), -1)
    of_op[forward] = found
    return outer, paths, of_op


def weight_owners(graph: OpGraph) -> Ints:
    """(weights,) the op that updates each weight, or else the first that reads it; -1 if none does."""
    updating = set(graph.mirror[graph.phase == Phase.UPDATE].tolist())
    owners = np.full(len(graph.weights), -1)
    updated = np.zeros(len(graph.weights), np.bool_)
    for op, weight in sorted(graph.weight_uses.tolist()):
        if owners[weight] < 0 or (op in updating and not updated[weight]):
            owners[weight], updated[weight] = op, op in updating
    return owners


def _reads(graph: OpGraph, of_op: Ints) -> Ints:
    op, weight = graph.weight_uses.T
    owner = weight_owners(graph)[weight]
    kept = (owner != op) & (of_op[op] >= 0)
    return np.unique(np.column_stack([of_op[op], owner])[kept], axis=0)
