"""Servers of V100 modules on NVLink, joined by one network card each: Ethernet or InfiniBand."""

from graphs.cluster import Cluster
from graphs.devices.catalogue import device, link
from graphs.devices.topology import Level, hierarchical

CONFIGURATIONS = ("servers=2,devices=4,gbps=25", "servers=4,devices=4,gbps=100", "servers=2,devices=8,gbps=100")


def build(*, servers: int = 2, devices: int = 4, gbps: float = 25.0) -> Cluster:
    """`devices` modules in each server, behind a switch of all their NVLinks; a network of `gbps` Gbit/s."""
    nvlinks = link("nvlink2")
    between = Level(servers, gbps * 1e9 / 8, link("25gbe").latency_seconds, "group")
    within = Level(devices, nvlinks.bandwidth, nvlinks.latency_seconds, "device")
    name = f"v100_servers:servers={servers},devices={devices},gbps={gbps:g}"
    return hierarchical(name, device("v100"), (between, within))
