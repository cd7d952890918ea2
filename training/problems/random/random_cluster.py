"""Random clusters: equal and unequal devices, in one server or several, on links that are shared, private or free."""

from dataclasses import replace

import numpy as np

from graphs.cluster import Cluster, Device
from graphs.devices.catalogue import LinkSpeed
from graphs.devices.servers import ANYTHING, Server, cluster_of_servers
from graphs.op_graph import Floats, Ints

FLOPS_PER_SECOND = 1e12, 1e14
FLOPS_PER_BYTE = 5.0, 50.0  # that a device computes while it moves a byte of its own memory
BYTES_PER_SECOND = 1e9, 1e11  # of a link
FASTER = 4.0  # by which a device is at most faster or slower than the middle, where they differ
SLOWEST = 32.0  # and a slow one again, as a processor is among accelerators
NETWORK = 20.0  # times slower than the links within servers the network is at most
LANES = 4.0  # times narrower than the widest a link within a server is at most, where they differ
LAYOUTS = {"shared": 0.45, "private": 0.3, "bus": 0.15, "free": 0.1}  # how links wait for each other, and how often


def random_cluster(rng: np.random.Generator, devices: int, op_seconds: float, *, unequal: bool) -> Cluster:
    """A cluster with memory without limit; delays are in proportion to the seconds that a typical op takes."""
    flops = log_uniform(rng, *FLOPS_PER_SECOND)
    launch = rng.uniform(0.0, 0.3) * op_seconds if rng.random() < 0.3 else 0.0
    typical = Device("gpu", "gpu", flops, flops / log_uniform(rng, *FLOPS_PER_BYTE), np.inf, launch)
    latency = 0.0 if rng.random() < 0.3 else log_uniform(rng, 0.01, 1.0) * op_seconds
    bandwidth = log_uniform(rng, *BYTES_PER_SECOND)
    servers = int(rng.integers(2, min(4, devices // 2) + 1)) if devices >= 4 and rng.random() < 0.4 else 1
    home = np.sort(np.concatenate([np.arange(servers), rng.integers(0, servers, devices - servers)]))
    speed = _speeds(rng, home) if unequal else np.ones(devices)
    lanes = 1 / _factors(rng, devices, LANES) if unequal and rng.random() < 0.5 else np.ones(devices)
    network = LinkSpeed(bandwidth / log_uniform(rng, 1.0, NETWORK), latency * log_uniform(rng, 1.0, NETWORK))
    made = [
        Server(
            tuple(typical.faster(speed[i]) for i in members),
            tuple(LinkSpeed(bandwidth * lanes[i], latency) for i in members),
            network if servers > 1 else ANYTHING,
        )
        for members in (np.flatnonzero(home == server).tolist() for server in range(servers))
    ]
    cluster = cluster_of_servers("random", made, "server" if rng.random() < 0.5 else "device")
    return _laid_out(cluster, str(rng.choice(list(LAYOUTS), p=list(LAYOUTS.values()))))


def seconds_per_byte(cluster: Cluster) -> float:
    """What a byte takes between two devices, the mean of all pairs, without latency."""
    apart = ~np.eye(len(cluster), dtype=np.bool_)
    return float((1 / cluster.bandwidth[apart]).mean())


def typical_speeds(cluster: Cluster) -> tuple[float, float]:
    """FLOP/s and bytes/s of a device: the geometric means."""
    speeds = [(device.flops_per_second, device.bytes_per_second) for device in cluster.devices]
    flops, moved = np.exp(np.log(speeds).mean(axis=0))
    return float(flops), float(moved)


def _laid_out(cluster: Cluster, layout: str) -> Cluster:
    """The same links: as servers share them, each by itself, all on one bus, or without any waiting."""
    pairs = np.arange(len(cluster) ** 2).reshape(cluster.channel.shape)
    if layout == "free":
        return replace(cluster.with_free_links(), name=cluster.name)
    if layout == "private":
        return replace(cluster, channel=pairs, gap=np.zeros(0), multicast=np.zeros(0, np.bool_))
    if layout == "bus":
        return replace(cluster, channel=0 * pairs, gap=np.zeros(0), multicast=np.zeros(0, np.bool_))
    return cluster


def _speeds(rng: np.random.Generator, home: Ints) -> Floats:
    """(devices,) by what each is faster than a typical one: alike within servers or not, some of them slow."""
    own: Floats = _factors(rng, len(home), FASTER**2) / FASTER
    if rng.random() < 0.5:
        own = own[np.unique(home, return_index=True)[1]][home]
    if rng.random() < 0.25:
        slow = rng.random(len(home)) < 0.5
        slow[rng.integers(len(home))] = False
        own = np.where(slow, own / _factors(rng, len(home), SLOWEST), own)
    return own


def _factors(rng: np.random.Generator, count: int, most: float) -> Floats:
    """(count,) factors from 1 to `most`, whose logarithm is uniform."""
    factors: Floats = np.exp(rng.random(count) * np.log(most))
    return factors


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """A number whose logarithm is uniform between those of two."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
