"""Servers: a cluster seen as groups of equal devices, with one speed within a group and one between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from envs.expansion.servers import by_server
from envs.simulation.compiled import subroutine
from graphs.cluster import FREE, Cluster
from graphs.op_graph import Bools, Ints

PAIR, DEVICE, SERVER = range(3)  # what has a channel of its own: a pair of devices, a sending device, a sending server


class ServerLinks(NamedTuple):
    """What joins devices within servers, and what joins the servers."""

    within_bandwidth: float  # bytes/s of a channel, the mean over pairs
    within_latency: float  # seconds
    within_channel: int  # PAIR, DEVICE or SERVER
    between_bandwidth: float
    between_latency: float
    between_channel: int


@dataclass(frozen=True, eq=False)
class Servers:
    """Devices by server; all of them are one where all links are alike."""

    devices: tuple[tuple[int, ...], ...]  # of each server
    links: ServerLinks

    @classmethod
    def of(cls, cluster: Cluster, devices: Sequence[int] = ()) -> Servers:
        """Servers are what only the slowest links join; of all devices, unless they are given."""
        chosen = np.array(devices or range(len(cluster)), np.int64)
        order, server_of = by_server(cluster, chosen.tolist())
        server = np.full(len(cluster), -1)
        server[chosen[order]] = server_of
        apart = ~np.eye(len(cluster), dtype=np.bool_) & (server[:, None] >= 0) & (server >= 0)
        inside = server[:, None] == server[None, :]
        groups = tuple(tuple(np.flatnonzero(server == number).tolist()) for number in range(int(server.max()) + 1))
        return cls(groups, ServerLinks(*_links(cluster, apart & inside), *_links(cluster, apart & ~inside)))

    @property
    def sizes(self) -> Ints:
        """(servers,) devices of each."""
        return np.array([len(devices) for devices in self.devices], np.int64)


@subroutine
def sum_seconds(links: ServerLinks, replicas: Ints) -> tuple[float, float]:
    """Latency, and seconds for each byte, of a ring all-reduce among `replicas` devices of each server, (servers,)."""
    count, used = 0, 0
    for server in range(len(replicas)):
        count += replicas[server]
        used += replicas[server] > 0
    bandwidth = links.between_bandwidth if used > 1 else links.within_bandwidth
    latency = links.between_latency if used > 1 else links.within_latency
    return 2 * (count - 1) * latency, 2 * (count - 1) / count / bandwidth


@subroutine
def send_seconds(links: ServerLinks, senders: Ints, receivers: Ints) -> tuple[float, float]:
    """Latency, and seconds for each byte, of an output that is sent on; (servers,) devices at either end.

    Each sender has an equal part of the output, and each receiver needs one. Channels work at the same time, so the
    busiest one counts.
    """
    sending, receiving = 0, 0
    for server in range(len(senders)):
        sending += senders[server]
        receiving += receivers[server]
    latency, longest = 0.0, 0.0
    for server in range(len(senders)):
        if senders[server]:
            share, wanted = senders[server] / sending, receivers[server] / receiving
            if wanted < 1:
                latency = max(latency, links.between_latency)
                part = share * (1 - wanted)
                if links.between_channel == DEVICE:
                    part /= senders[server]
                elif links.between_channel == PAIR:
                    part = 1 / max(sending, receiving)
                longest = max(longest, part / links.between_bandwidth)
            if wanted > 0:
                latency = max(latency, links.within_latency)
                part = share * wanted
                if links.within_channel == DEVICE:
                    part /= senders[server]
                elif links.within_channel == PAIR:
                    part = 1 / max(sending, receiving)
                longest = max(longest, part / links.within_bandwidth)
    return latency, longest


def _links(cluster: Cluster, pairs: Bools) -> tuple[float, float, int]:
    """Bandwidth, latency and kind of channel of what joins these pairs of devices; free without any."""
    if not pairs.any():
        return np.inf, 0.0, PAIR
    channels, senders = cluster.channel[pairs], len(np.unique(np.nonzero(pairs)[0]))
    distinct, kind = len(np.unique(channels)), PAIR
    if (channels != FREE).all() and distinct <= senders:
        kind = DEVICE if distinct == senders else SERVER
    return float(cluster.bandwidth[pairs].mean()), float(cluster.latency[pairs].mean()), kind
