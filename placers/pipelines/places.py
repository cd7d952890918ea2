"""Sequences of places: which devices the stages of a pipeline may have, one after the other.

Devices are put into a row, in several ways: server by server, the fast ones first or last, those with much memory first
or last, and one of each server in turn. A row, or a part of it, is divided into consecutive sets, each of which is a
stage: all ways to do so for a few devices, and some of them for many; others are found by shortest paths
(`placers.pipelines.replica_counts`). Slow devices may be left out.
"""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from envs.expansion.servers import by_server
from graphs.cluster import Cluster
from graphs.op_graph import Ints
from placers.pipelines.stage_costs import Devices

FEW = 8  # devices that are divided in all ways; ours
PARTS = 16  # of a row of many devices, that are divided into up to three stages in all ways; ours

Sets = tuple[tuple[int, ...], ...]


def sequences(
    cluster: Cluster, devices: Devices, server: Ints, samples: int, most: int, first: Iterable[Sets] = ()
) -> Iterator[Sets]:
    """Sequences of sets of devices for at most `most` stages, without those that are like earlier ones.

    `server` is that of each device, (devices,). The replicas of each stage divide the samples, if it is known how many
    there are. `first` are sequences that are found in another way.
    """
    seen: set[tuple[tuple[tuple[int, int], ...], ...]] = set()
    for sets in itertools.chain(first, _regular(cluster, devices, server, samples, most)):
        alike = _signature(sets, server.tolist(), devices.kind.tolist())
        if alike not in seen:
            seen.add(alike)
            yield sets


def _regular(cluster: Cluster, devices: Devices, server: Ints, samples: int, most: int) -> Iterator[Sets]:
    """Sequences of sets whose sizes are regular."""
    for row in rows(cluster, devices, server):
        for count in _counts(len(row)):
            for sizes in divisions(count, most):
                if not samples or not any(samples % size for size in sizes):
                    ends = np.cumsum([0, *sizes]).tolist()
                    yield tuple(tuple(sorted(row[begin:end])) for begin, end in itertools.pairwise(ends))


def _signature(sets: Sets, server: list[int], kind: list[int]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Of each set the servers and kinds of its devices; servers, which like links join, are numbered as they occur."""
    number: dict[int, int] = {}
    return tuple(
        tuple(sorted((number.setdefault(server[each], len(number)), kind[each]) for each in several))
        for several in sets
    )


def divisions(count: int, most: int) -> Iterator[tuple[int, ...]]:
    """The sizes of consecutive sets of `count` devices: all for a few; equal ones, and up to three sets, for many."""
    if count <= FEW:
        for stages in range(1, min(count, most) + 1):
            yield from _cut_at(count, 1, stages)
        return
    lot = -(-count // PARTS)
    while count % lot:
        lot += 1
    found = dict.fromkeys(sizes for stages in range(1, min(3, most) + 1) for sizes in _cut_at(count, lot, stages))
    for each in range(1, count + 1):
        if count % each == 0 and count // each <= most:
            found[(each,) * (count // each)] = None
        if each < count and most > 1:
            found[(each, count - each)] = None
            if count - each < most:
                found[(each, *(1,) * (count - each))] = None
                found[(*(1,) * (count - each), each)] = None
    yield from found


def _cut_at(count: int, lot: int, stages: int) -> Iterator[tuple[int, ...]]:
    for ends in itertools.combinations(range(lot, count, lot), stages - 1):
        yield tuple(end - begin for begin, end in itertools.pairwise((0, *ends, count)))


def _counts(devices: int) -> list[int]:
    """How many devices of a row are used: any number of a few; else all, one less, halves, or one."""
    if devices <= FEW:
        return list(range(devices, 0, -1))
    halves = [devices >> shift for shift in range(devices.bit_length())]
    return sorted({*halves, devices - 1, 1}, reverse=True)


def server_of(cluster: Cluster, devices: Devices) -> Ints:
    """(devices,) the server of each device that is used, or -1."""
    order, server = by_server(cluster, devices.used)
    found = np.full(len(cluster), -1)
    found[np.array(devices.used)[order]] = server
    return found


def rows(cluster: Cluster, devices: Devices, server: Ints) -> list[tuple[int, ...]]:
    """Devices in a row, in several ways."""
    order, _ = by_server(cluster, devices.used)
    ring = [devices.used[position] for position in order.tolist()]
    of_server: dict[int, int] = {}
    turn = {}  # how many devices of its server come before each
    for device in ring:
        turn[device] = of_server.get(int(server[device]), 0)
        of_server[int(server[device])] = turn[device] + 1
    keys = (
        lambda device: 0.0,  # noqa: ARG005 - as they are
        lambda device: float(devices.seconds[device]),
        lambda device: -float(devices.seconds[device]),
        lambda device: -float(devices.memory_bytes[device]),
        lambda device: float(devices.memory_bytes[device]),
        lambda device: float(turn[device]),
    )
    rows = [tuple(sorted(ring, key=key)) for key in keys]
    return list(dict.fromkeys([*rows, rows[0][::-1]]))
