"""NVIDIA DGX A100 servers: eight A100 on NVSwitch, and a network card of its own for each."""

from graphs.cluster import Cluster
from graphs.devices.catalogue import device, link
from graphs.devices.topology import Level, hierarchical

CONFIGURATIONS = ("servers=1,devices=8", "servers=2,devices=8", "servers=4,devices=8")


def build(*, servers: int = 1, devices: int = 8) -> Cluster:
    """`devices` modules in each server; what leaves a module shares its NVLinks, or its network card."""
    network, nvlinks = link("infiniband200"), link("nvlink3")  # ConnectX-6, "DGX A100" data sheet
    between = Level(servers, network.bandwidth, network.latency_seconds, "device")
    within = Level(devices, nvlinks.bandwidth, nvlinks.latency_seconds, "device")
    return hierarchical(f"dgx_a100:servers={servers},devices={devices}", device("a100-40gb"), (between, within))
