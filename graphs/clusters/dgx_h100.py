"""NVIDIA DGX H100 servers: eight H100 on NVSwitch, and a network card of its own for each."""

from __future__ import annotations

from graphs.cluster import GIB, Cluster, Device
from graphs.clusters.dgx_a100 import NETWORK_LATENCY, NVSWITCH_LATENCY
from graphs.topology import Level, hierarchical

CONFIGURATIONS = ("servers=1,devices=8", "servers=2,devices=8", "servers=4,devices=8")

H100 = Device(
    "gpu",
    "gpu",
    flops_per_second=67e12,  # single precision without tensor cores, "H100" data sheet (NVIDIA 2022), SXM
    bytes_per_second=3350e9,  # same data sheet, 80 GB model
    memory_bytes=80 * GIB,  # same data sheet
    launch_seconds=5e-6,  # what a kernel launch takes on CUDA devices; ours
)
NVSWITCH_BANDWIDTH = 450e9  # bytes/s out of a module: eighteen NVLinks of 25 GB/s, "DGX H100" data sheet (NVIDIA 2022)
NETWORK_BANDWIDTH = 50e9  # bytes/s out of a module: ConnectX-7, 400 Gbit/s InfiniBand each, same data sheet


def build(*, servers: int = 1, devices: int = 8) -> Cluster:
    """`devices` modules in each server; what leaves a module shares its NVLinks, or its network card."""
    between = Level(servers, NETWORK_BANDWIDTH, NETWORK_LATENCY, "device")
    within = Level(devices, NVSWITCH_BANDWIDTH, NVSWITCH_LATENCY, "device")
    return hierarchical(f"dgx_h100:servers={servers},devices={devices}", H100, (between, within))
