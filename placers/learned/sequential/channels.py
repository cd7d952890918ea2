"""Channels: over which channel devices send to each other, and which devices use each of them."""

from typing import NamedTuple, Self

import numpy as np

from graphs.algorithms.pairs import distinct_pairs, row_offsets
from graphs.cluster import Cluster
from graphs.op_graph import Ints


class Channels(NamedTuple):
    """The channels of a cluster; what each carries matters to the devices that send or receive over it."""

    between: Ints  # (devices, devices) as `Cluster.links`; 0 within a device
    number: int  # of channels
    leaving_start: Ints  # (channels + 1,) where those begin that send over each channel, in `leaving`
    leaving: Ints  # devices, each once for a channel
    coming_start: Ints  # (channels + 1,) where those begin that receive over each channel, in `coming`
    coming: Ints  # devices, each once for a channel

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """Those of a cluster; at least one."""
        apart = ~np.eye(len(cluster), dtype=np.bool_)
        links, number = cluster.links[apart], int(cluster.links[apart].max(initial=0)) + 1
        sources, destinations = np.nonzero(apart)
        senders, receivers = _users(links, sources, number), _users(links, destinations, number)
        return cls(np.where(apart, cluster.links, 0), number, *senders, *receivers)


def _users(links: Ints, devices: Ints, number: int) -> tuple[Ints, Ints]:
    """(channels + 1,) where the devices of each channel begin, and these; of (pairs,) links and devices."""
    pairs, _ = distinct_pairs(np.stack([links, devices], axis=1))
    return row_offsets(pairs[:, 0], number), np.ascontiguousarray(pairs[:, 1])
