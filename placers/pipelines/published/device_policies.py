"""Device policies: which devices a stage of a pipeline is given (DAPPLE: Fan et al. 2021, section 4.2).

Devices of a server are alike, so a set of devices is how many there are of each server. Three policies choose them:

    fresh first     of servers that no stage uses so far, to be on the fast links within them
    append first    of servers that are used in part, to leave no holes
    scatter first   in turns of all servers that are used in part, or of all if none is, for many network cards

Where those do not have enough, devices of the other servers follow in order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from graphs.op_graph import Ints

MOST = 16  # devices, or lots of them; ours: beyond that there are too many sets to try all

Counts = tuple[int, ...]  # (servers,) devices of each


def fresh_first(free: Counts, used: Counts, wanted: int) -> Counts:
    """Of each server how many devices a stage is given; `free` and `used` are those of each server so far."""
    return _in_order(free, sorted(range(len(free)), key=lambda server: used[server] > 0), wanted)


def append_first(free: Counts, used: Counts, wanted: int) -> Counts:
    """As `fresh_first`."""
    return _in_order(free, sorted(range(len(free)), key=lambda server: used[server] == 0), wanted)


def scatter_first(free: Counts, used: Counts, wanted: int) -> Counts:
    """As `fresh_first`."""
    taken = [0] * len(free)
    preferred = [server for server in range(len(free)) if used[server]]
    for servers in (preferred, range(len(free))):
        while sum(taken) < wanted and any(taken[server] < free[server] for server in servers):
            for server in servers:
                if taken[server] < free[server] and sum(taken) < wanted:
                    taken[server] += 1
    return tuple(taken)


def _in_order(free: Counts, servers: list[int], wanted: int) -> Counts:
    taken = [0] * len(free)
    for server in servers:
        taken[server] = min(free[server], wanted - sum(taken))
    return tuple(taken)


POLICIES = (fresh_first, append_first, scatter_first)


@dataclass(frozen=True, eq=False)
class DeviceSets:
    """Sets of devices that stages may have used so far, the smaller ones first, and what the next stage may be given.

    The first set is empty. Every move leaves at least one device.
    """

    devices: Ints  # (servers,) of each
    used: Ints  # (sets, servers)
    offsets: Ints  # (sets + 1,) where the moves from each set begin
    given: Ints  # (moves, servers) devices of the next stage
    to: Ints  # (moves,) the set that is used then

    @classmethod
    def of(cls, sizes: Counts) -> DeviceSets:
        """All that the policies lead to, on servers with `sizes` devices each.

        More than `MOST` devices are given out several at a time, if the size of every server is a multiple of that.
        """
        lots = [lot for lot in range(1, math.gcd(*sizes) + 1) if not any(size % lot for size in sizes)]
        lot = next((lot for lot in lots if sum(sizes) <= MOST * lot), lots[-1])
        small = cls._of(tuple(size // lot for size in sizes))
        return cls(small.devices * lot, small.used * lot, small.offsets, small.given * lot, small.to)

    @classmethod
    def _of(cls, sizes: Counts) -> DeviceSets:
        by_size: list[dict[Counts, list[Counts]]] = [{} for _ in range(sum(sizes) + 1)]
        by_size[0][(0,) * len(sizes)] = []
        for size, sets in enumerate(by_size):
            for used, given in sets.items():
                free = tuple(np.subtract(sizes, used).tolist())
                for wanted in range(1, sum(sizes) - size):
                    chosen = {policy(free, used, wanted): None for policy in POLICIES}
                    for counts in chosen:
                        given.append(counts)
                        by_size[size + wanted].setdefault(tuple(np.add(used, counts).tolist()), [])
        found = {used: given for sets in by_size for used, given in sets.items()}
        index = {used: number for number, used in enumerate(found)}
        offsets = np.cumsum([0, *(len(given) for given in found.values())]).astype(np.int64)
        pairs = [
            (counts, index[tuple(np.add(used, counts).tolist())]) for used, all_ in found.items() for counts in all_
        ]
        all_given = np.array([counts for counts, _ in pairs], np.int64).reshape(-1, len(sizes))
        to = np.array([to for _, to in pairs], np.int64)
        return cls(np.array(sizes, np.int64), np.array(list(found), np.int64), offsets, all_given, to)

    def __len__(self) -> int:
        return len(self.used)
