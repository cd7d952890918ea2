"""NVIDIA DGX A100 servers: eight A100 of 40 or 80 GB on NVSwitch, and a network card of its own for each."""

from typing import Literal

from graphs.cluster import Cluster
from graphs.devices.catalogue import device, link
from graphs.devices.topology import Level, hierarchical

CONFIGURATIONS = ("servers=1,devices=8", "servers=2,devices=8", "servers=4,devices=8")


def build(*, servers: int = 1, devices: int = 8, memory: Literal[40, 80] = 40) -> Cluster:
    """`devices` modules of `memory` GB in each server; what leaves one shares its NVLinks, or its network card."""
    network, nvlinks = link("infiniband200"), link("nvlink3")  # ConnectX-6, "DGX A100" data sheet
    between = Level(servers, network.bandwidth, network.latency_seconds, "device")
    within = Level(devices, nvlinks.bandwidth, nvlinks.latency_seconds, "device")
    name = f"dgx_a100:servers={servers},devices={devices}{f',{memory=}' if memory != 40 else ''}"
    return hierarchical(name, device(f"a100-{memory}gb"), (between, within))
