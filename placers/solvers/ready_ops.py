"""ReadyOps: of the ops that are ready and the devices that each may go to, the pair that starts first.

A device starts an op when it is free and the op's inputs are there. So, of the ops whose inputs are there when it
becomes free, it can start the most urgent one first; if there are none, the one whose inputs come first. A tree of
minima over all ops, the most urgent first, finds either in log(ops) steps, however many are ready.
"""

import math
from typing import NamedTuple

import numpy as np

from envs.simulation.compiled import compiled, subroutine
from graphs.op_graph import Bools, Floats, Ints

# the trees of a device: when the inputs of each op are on it, for ops that take time there and for those that take
# none, which it starts whatever it does; and when the inputs of those that take time are on all devices
TIMED, UNTIMED, EVERYWHERE = range(3)


class Pair(NamedTuple):
    """An op, the device that it goes to, and when it starts there."""

    op: int
    device: int
    start: float  # seconds


class ReadyOps:
    """None at first: ops are offered once their inputs are planned, and taken out one by one."""

    def __init__(self, by_urgency: Ints, takes_time: Bools) -> None:
        """`by_urgency` has all ops, (ops,), the most urgent first; `takes_time` says where they do, (ops, devices)."""
        ops, devices = takes_time.shape
        self._by_urgency, self._rank, self._takes_time = by_urgency, np.argsort(by_urgency), takes_time
        leaves = 1 << max(ops - 1, 0).bit_length()
        # the root of a tree is at 1, the children of a node at twice its index, and the leaves are its second half:
        # seconds, or infinite if an op is not ready or may not go there
        self._trees = np.full((3, devices, 2 * leaves), np.inf)
        self._found = np.zeros(2, np.int64)

    def offer(self, op: int, arrivals: Floats, allowed: Ints) -> None:
        """Let an op go to the devices in `allowed`, and to no others; its inputs are on each at `arrivals`, (devices,).

        Seconds, as everywhere here.
        """
        _write_leaves(self._trees, self._rank[op], arrivals, self._takes_time[op], allowed)

    def take(self, free: Floats, awaited: Ints, until: Floats) -> Pair | None:
        """Take out the op that starts first: of several the most urgent one, on the first device; None without any.

        Devices are free from `free` on, (devices,). One that waits for an op, `awaited` (devices,) or -1, starts no
        other before `until`, (devices,), or when that has its inputs on all devices, if this is earlier.
        """
        ranks = np.where(awaited >= 0, self._rank[awaited], -1)
        start = _take_first(self._trees, free, ranks, until, self._found)
        rank, device = self._found.tolist()
        return None if math.isinf(start) else Pair(int(self._by_urgency[rank]), device, start)


@compiled
def _write_leaves(trees: Floats, rank: int, arrivals: Floats, takes_time: Bools, allowed: Ints) -> None:
    _remove(trees, rank)
    everywhere = 0.0
    for device in range(len(arrivals)):
        everywhere = max(everywhere, arrivals[device])
    for device in allowed:
        if takes_time[device]:
            _write(trees[TIMED, device], rank, arrivals[device])
            _write(trees[EVERYWHERE, device], rank, everywhere)
        else:
            _write(trees[UNTIMED, device], rank, arrivals[device])


@compiled
def _take_first(trees: Floats, free: Floats, awaited: Ints, until: Floats, found: Ints) -> float:
    """When the op starts that is taken out, or infinity; write its rank and its device to `found`, (2,)."""
    first, first_rank = np.inf, len(trees[0, 0])
    for device in range(len(free)):
        waits = awaited[device] >= 0
        for kind in range(len(trees)):
            tree, since = trees[kind, device], free[device]
            if kind == UNTIMED:
                since = 0.0
            elif kind == TIMED and waits:  # too late for what is awaited or urgent, which follow
                since = max(since, until[device])
            elif kind == EVERYWHERE and not (waits and tree[1] <= until[device]):
                continue
            start = max(tree[1], since)
            if start < np.inf and start <= first:
                rank = _leftmost(tree, start)
                if start < first or rank < first_rank:
                    first, first_rank, found[1] = start, rank, device
        if waits:
            start = max(trees[TIMED, device, trees.shape[2] // 2 + awaited[device]], free[device])
            if start < first or (start == first and awaited[device] < first_rank):
                first, first_rank, found[1] = start, awaited[device], device
    if first < np.inf:
        found[0] = first_rank
        _remove(trees, first_rank)
    return first


@subroutine
def _remove(trees: Floats, rank: int) -> None:
    """From all devices."""
    for kind in range(len(trees)):
        for device in range(trees.shape[1]):
            _write(trees[kind, device], rank, np.inf)


@subroutine
def _write(tree: Floats, leaf: int, value: float) -> None:
    """Set a leaf, and the minima above it as far as they change."""
    node = len(tree) // 2 + leaf
    while node >= 1 and tree[node] != value:
        tree[node] = value
        node //= 2
        value = min(tree[2 * node], tree[2 * node + 1])


@subroutine
def _leftmost(tree: Floats, most: float) -> int:
    """The first leaf of no more than `most`; there is one."""
    node = 1
    while node < len(tree) // 2:
        node = 2 * node if tree[2 * node] <= most else 2 * node + 1
    return node - len(tree) // 2
