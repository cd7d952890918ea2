"""Topologies: clusters of equal devices on several levels, such as cards on a switch, switches in a server, servers.

Two devices talk over the outermost level on which they are apart, at its bandwidth. What they share there is a serial
channel: a transfer of the simulator occupies one channel, so of a path over several links it is the narrowest shared
one that counts, and it is the sender's side of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from graphs.cluster import Cluster, Device
from graphs.errors import InputError


@dataclass(frozen=True)
class Level:
    """`count` equal groups of devices, or devices, side by side, and what joins them."""

    count: int
    bandwidth: float  # bytes/s of a channel
    latency: float  # seconds
    shared: Literal["pair", "device", "group"]  # who has a channel of its own: each pair of devices, each
    # sending device (its lanes, or its own network card), or each sending group (its uplink, or only network card)


def hierarchical(name: str, device: Device, levels: Sequence[Level]) -> Cluster:
    """Devices "gpu:0", ..., grouped by levels from the outermost to the innermost.

    Raises InputError for a level of less than one group.
    """
    for level in levels:
        if level.count < 1:
            raise InputError(f"cluster {name!r}: a level has {level.count} groups or devices; expected at least 1")
    counts = [level.count for level in levels]
    devices = int(np.prod(counts))
    place = np.stack(np.unravel_index(np.arange(devices), counts), axis=1)  # (devices, levels) position in each level
    apart = place[:, None, :] != place[None, :, :]
    at = apart.argmax(axis=2)  # (devices, devices) the outermost level on which two are apart
    source, target = np.indices((devices, devices))
    channel = np.zeros((devices, devices), np.int64)
    for index, level in enumerate(levels):
        group = np.ravel_multi_index(tuple(place[:, : index + 1].T), counts[: index + 1])[source]
        mine = {"pair": source * devices + target, "device": source, "group": group}[level.shared]
        channel = np.where(at == index, index * devices**2 + mine, channel)
    _, numbered = np.unique(channel, return_inverse=True)
    return Cluster(
        name,
        tuple(replace(device, name=f"{device.kind}:{i}") for i in range(devices)),
        latency=np.array([level.latency for level in levels])[at],
        bandwidth=np.array([level.bandwidth for level in levels])[at],
        channel=numbered.reshape(devices, devices),
    )
