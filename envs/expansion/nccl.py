"""How long all-reduces take with NCCL, and which transfers stand for one.

    seconds = min over protocols of  start + max(step * latency, bytes on the busiest link / (share * its bandwidth))

`latency` is that of the links that a part of the sum crosses one after another: up and down a chain through the devices
of each server, and a binary tree over the servers. Servers are found by their links (`envs.expansion.servers`). Each
device sends over all of its channels within its server at once, and each server over all of its network cards: as many
rings as there are links, or trees. A ring enters a device from one neighbour and leaves it to another, so that links to
one neighbour are used no more than those to all others together, unless there is no other. Links that are less than
half as fast as a device's fastest, as PCIe next to NVLinks, are left out where the others join all devices. A channel
that several devices share carries what all of them send.

NCCL chooses in the same way among protocols, with other numbers (`src/graph/tuning.cc`, github.com/NVIDIA/nccl): LL
sends flags with every 8 bytes and waits least, Simple sends large pieces and waits longest. Its estimates rank them;
what it takes in truth is up to twice as much. `PROTOCOLS` are fitted to all-reduces that were measured, from 1 MiB to
1 GiB: those of 2 to 8 A100 behind NVSwitch, and of 2 to 8 V100 of a DGX-1, that vTrain publishes (Bang et al. 2024,
`trace/*/AR_GPU*_LUT` in github.com/VIA-Research/vTrain), and nccl-tests between two servers of 8 A100. All are met
within 18%. Below 1 MiB nothing was compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from envs.expansion.servers import by_server
from graphs.algorithms.components import connected_components
from graphs.cluster import FASTEST, LEAST, Cluster
from graphs.op_graph import Floats, Ints


class Protocol(NamedTuple):
    """How NCCL sends."""

    start: float  # seconds: the kernel, and what is exchanged first
    step: float  # of each link's latency, how much a step waits
    share: float  # of a link's bandwidth, how much data has


PROTOCOLS = {
    "LL": Protocol(38e-6, 0.39, 0.55),
    "LL128": Protocol(30e-6, 1.0, 0.57),
    "Simple": Protocol(34e-6, 1.7, 0.87),
}


class Route(NamedTuple):
    """The transfers of an all-reduce among some devices, one for each channel that it uses, all at the same time."""

    source: Ints  # (transfers,) positions of devices
    target: Ints  # (transfers,)
    share: Floats  # (transfers,) bytes that each carries, by those of the sum
    latency: float  # seconds, of all links that follow one another
    half_latency: float  # seconds, the same of a reduce-scatter or an all-gather, which are rings through all devices
    per_byte: float  # seconds of the busiest channel or device, by the bytes of the sum

    def half(self) -> Route:
        """That of a reduce-scatter or an all-gather, which send half as much."""
        return self._replace(share=self.share / 2, latency=self.half_latency, per_byte=self.per_byte / 2)


def all_reduce_seconds(cluster: Cluster, devices: Sequence[int], sum_bytes: float) -> float:
    """How long NCCL takes to sum up a tensor of each of some devices, if nothing else uses their links."""
    route = route_of(cluster, tuple(devices))
    return float(collective_seconds(route.latency, np.array([sum_bytes * route.per_byte]))[0])


def collective_seconds(latency: Floats | float, busiest: Floats, late: Floats | float = 0.0) -> Floats:
    """(collectives,) seconds; none where links take no time.

    The latency is that of the links that follow one another; the busiest channel takes the time of its bytes. `late` is
    for how long the others wait for the last member.
    """
    least = np.full(len(busiest), np.inf)
    for start, step, share in PROTOCOLS.values():
        least = np.minimum(least, start + np.maximum(step * latency, busiest / share))
    found: Floats = np.where(latency + busiest > 0, least + late, 0.0)
    return found


@lru_cache(1 << 10)
def route_of(cluster: Cluster, devices: tuple[int, ...]) -> Route:
    """The route among distinct devices, at least two.

    It moves 2 (R - 1) times the bytes of the sum, as every all-reduce that moves the fewest.
    """
    servers = _servers(cluster, devices)
    within, between = list[tuple[int, int, float]](), list[tuple[int, int, float]]()
    busiest = 0.0
    for number, members in enumerate(servers):
        there = servers[(number + 1) % len(servers)]
        share = 2 * (len(members) - 1) / len(members)
        across = 2 * (len(servers) - 1) / len(servers) / len(members)
        for place, member in enumerate(members):
            within += [(member, other, share) for other in _from(members, place + 1)[:-1]]
            between += [(member, other, across) for other in _from(there, place) if len(servers) > 1]
            busiest = max(busiest, share / cluster.devices[devices[member]].collective_bytes_per_second)
    hops = max(map(len, servers)) - 1, math.ceil(math.log2(len(servers)))
    within = _fast(cluster, devices, within, len(devices) - len(servers))
    pairs = ((count, each) for count, each in zip(hops, (within, between), strict=True) if each)
    counted = [(count, _flows(cluster, devices, each)) for count, each in pairs]
    latency = 2 * sum(count * flows.latency for count, flows in counted)
    steps = [count for count in (len(devices) - len(servers), len(servers) - 1) if count]
    half_latency = sum(count * flows.latency for count, (_, flows) in zip(steps, counted, strict=True))
    channels = np.concatenate([flows.channel for _, flows in counted])
    ends = np.concatenate([flows.ends for _, flows in counted])
    _, first, channel = np.unique(channels, return_index=True, return_inverse=True)
    carried = np.zeros((len(first), 2))  # share, seconds
    np.add.at(carried, channel, np.concatenate([np.stack([flows.share, flows.seconds], 1) for _, flows in counted]))
    per_byte = max(busiest, float(carried[:, 1].max()))
    return Route(ends[first, 0], ends[first, 1], carried[:, 0], latency, half_latency, per_byte)


class _Flows(NamedTuple):
    """What devices send over each of their channels."""

    channel: Ints  # (flows,)
    ends: Ints  # (flows, 2) positions of the device, and of the first of those that the channel leads to
    share: Floats  # (flows,) as in `Route`
    seconds: Floats  # (flows,) by the bytes of the sum
    latency: float  # seconds of the slowest


def _flows(cluster: Cluster, devices: tuple[int, ...], pairs: list[tuple[int, int, float]]) -> _Flows:
    """What is sent if each device divides its share among its channels, by their bandwidths; several may use one.

    Pairs are a device, another one that it may send to, and its share, the preferred ones first.
    """
    ends, share = np.array([pair[:2] for pair in pairs]), np.array([pair[2] for pair in pairs])
    source, target = np.array(devices)[ends].T
    kept = np.unique(np.stack([source, cluster.links[source, target]]), axis=1, return_index=True)[1]
    source, target = source[kept], target[kept]
    channel, bandwidth = cluster.links[source, target], cluster.bandwidth[source, target]
    weight = np.minimum(bandwidth, FASTEST) / np.bincount(channel)[channel]
    whole, widest = np.bincount(source, weight), np.zeros(len(cluster))
    np.maximum.at(widest, source, weight)
    others = np.bincount(source, weight) - widest[: len(whole)]
    part = share[kept] * weight / whole[source]
    turned = np.where(others > 0, np.maximum(whole / (2 * np.maximum(others, LEAST)), 1.0), 1.0)
    latency = float(cluster.latency[source, target].max())
    return _Flows(channel, ends[kept], part, part / bandwidth * turned[source], latency)


def _fast(
    cluster: Cluster, devices: tuple[int, ...], pairs: list[tuple[int, int, float]], joined: int
) -> list[tuple[int, int, float]]:
    """Pairs whose links are at least half as fast as those of both devices' fastest, if they join as many devices."""
    if not pairs:
        return pairs
    source, target = np.array(devices)[np.array([pair[:2] for pair in pairs])].T
    fastest = np.zeros(len(cluster))
    np.maximum.at(fastest, source, cluster.bandwidth[source, target])
    is_fast = cluster.bandwidth[source, target] >= np.maximum(fastest[source], fastest[target]) / 2
    group = connected_components(np.stack([source, target], axis=1)[is_fast], len(cluster))
    if len(cluster) - len(np.unique(group)) < joined:
        return pairs
    return [pair for pair, kept in zip(pairs, is_fast.tolist(), strict=True) if kept]


def _servers(cluster: Cluster, devices: tuple[int, ...]) -> list[list[int]]:
    """Positions of the devices of each server, in the order of a ring.

    Links as near as others and at least half as fast, as one NVLink where others have two, are of the same server.
    """
    order, server = by_server(cluster, devices)
    apart = ~np.eye(len(devices), dtype=np.bool_)
    latency, bandwidth = (each[np.ix_(devices, devices)][apart] for each in (cluster.latency, cluster.bandwidth))
    if latency.min() == latency.max() and bandwidth.max() <= 2 * bandwidth.min():
        return [order.tolist()]
    return [order[server == number].tolist() for number in range(int(server.max()) + 1)]


def _from(members: list[int], place: int) -> list[int]:
    """The same members, from a place on; it may be beyond the end."""
    place %= len(members)
    return members[place:] + members[:place]
