"""Servers of V100 modules on NVLink, joined by one network card each: Ethernet or InfiniBand."""

from __future__ import annotations

from graphs.cluster import Cluster
from graphs.clusters.v100 import LINK_BANDWIDTH, LINK_LATENCY, V100
from graphs.topology import Level, hierarchical

CONFIGURATIONS = ("servers=2,devices=4,gbps=25", "servers=4,devices=4,gbps=100", "servers=2,devices=8,gbps=100")

LINKS_PER_MODULE = 6  # "Tesla V100 GPU architecture" (NVIDIA 2017)
NETWORK_LATENCY = 25e-6  # seconds; ours: the order of a small message between servers over TCP


def build(*, servers: int = 2, devices: int = 4, gbps: float = 25.0) -> Cluster:
    """`devices` modules in each server, behind a switch of all their NVLinks; a network of `gbps` Gbit/s."""
    between = Level(servers, gbps * 1e9 / 8, NETWORK_LATENCY, "group")
    within = Level(devices, LINKS_PER_MODULE * LINK_BANDWIDTH, LINK_LATENCY, "device")
    return hierarchical(f"v100_servers:servers={servers},devices={devices},gbps={gbps:g}", V100, (between, within))
