"""Topologies: clusters composed level by level, such as GPUs on a PCIe switch, switches in a server, servers.

A level puts copies of a group of devices side by side and joins them. Two devices talk over the outermost level on
which they are apart, at its bandwidth. A path over several links is one serial channel of the simulator: the narrowest
link that others share, on the sender's side, since links and network cards carry both directions at once.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from graphs.cluster import FREE, Cluster, Device, check_count
from graphs.foundation.errors import InputError

Shared = Literal["pair", "device", "group", "free"]


@dataclass(frozen=True)
class Level:
    """`count` copies of a group of devices side by side, and what joins them."""

    count: int
    bandwidth: float  # bytes/s of a channel
    latency: float  # seconds
    shared: Shared  # what has a channel of its own: each ordered pair of devices, each sending device (its lanes, or
    # its own network card), or each sending copy (its uplink, or only network card); if "free", no transfer waits
    gap: float = 0.0  # seconds a channel is held after each transfer
    multicast: bool = False  # one transfer serves all destinations of an output


def joined(name: str, group: Cluster, level: Level) -> Cluster:
    """Copies of a group of devices, joined by a level; devices are named "cpu:0", "gpu:0", "gpu:1", ... by kind.

    Raises InputError for a level of less than one copy, for more devices than can be simulated, and for a gap or
    multicast of free links.
    """
    if level.count < 1:
        raise InputError(f"cluster {name!r}: a level has {level.count} groups or devices; expected at least 1")
    check_count(name, level.count * len(group))
    if level.shared == "free" and (level.gap or level.multicast):
        raise InputError(f"cluster {name!r}: free links have no gap and no multicast; leave both out of the level")
    size, used = len(group), len(group.gap)
    copy, position = np.divmod(np.arange(level.count * size), size)
    inside, pairs = np.ix_(position, position), (len(copy), len(copy))
    together = copy[:, None] == copy[None, :]
    source, target = np.indices(pairs)
    inner = group.channel[inside]
    within = np.where(inner == FREE, FREE, copy[:, None] * used + inner)
    senders = {"pair": source * len(copy) + target, "device": source, "group": copy[source]}
    between = np.full(pairs, FREE) if level.shared == "free" else level.count * used + senders[level.shared]
    channel = np.where(together, within, between)
    channels = max(level.count * used, int(between.max()) + 1)
    gap, multicast = np.full(channels, level.gap), np.full(channels, level.multicast)
    gap[: level.count * used] = np.tile(group.gap, level.count)
    multicast[: level.count * used] = np.tile(group.multicast, level.count)
    serial = ~np.eye(len(copy), dtype=np.bool_) & (channel != FREE)
    kept, numbered = np.unique(channel[serial], return_inverse=True)
    channel = np.where(np.eye(len(copy), dtype=np.bool_), 0, FREE)
    channel[serial] = numbered
    return Cluster(
        name,
        named_by_kind([group.devices[i] for i in position]),
        latency=np.where(together, group.latency[inside], level.latency),
        bandwidth=np.where(together, group.bandwidth[inside], level.bandwidth),
        channel=channel,
        gap=gap[kept],
        multicast=multicast[kept],
    )


def hierarchical(name: str, device: Device, levels: Sequence[Level]) -> Cluster:
    """Equal devices, grouped by levels from the outermost to the innermost.

    Raises InputError for a level of less than one group.
    """
    alone = np.ones((1, 1))
    cluster = Cluster(name, named_by_kind([device]), latency=alone, bandwidth=alone, channel=np.zeros((1, 1), int))
    for level in reversed(levels):
        cluster = joined(name, cluster, level)
    return cluster


def named_by_kind(devices: Sequence[Device]) -> tuple[Device, ...]:
    """The same devices, each with a name of its own: "cpu:0", "gpu:0", "gpu:1", ... by kind."""
    seen: Counter[str] = Counter()
    named = []
    for device in devices:
        named.append(replace(device, name=f"{device.kind}:{seen[device.kind]}"))
        seen[device.kind] += 1
    return tuple(named)
