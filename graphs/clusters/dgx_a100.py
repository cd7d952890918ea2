"""NVIDIA DGX A100 servers: eight A100 on NVSwitch, and a network card of its own for each."""

from __future__ import annotations

from graphs.cluster import GIB, Cluster, Device
from graphs.topology import Level, hierarchical

CONFIGURATIONS = ("servers=1,devices=8", "servers=2,devices=8", "servers=4,devices=8")

A100 = Device(
    "gpu",
    "gpu",
    flops_per_second=19.5e12,  # single precision without tensor cores, "A100" data sheet (NVIDIA 2020), SXM
    bytes_per_second=1555e9,  # same data sheet, 40 GB model
    memory_bytes=40 * GIB,  # same data sheet
    launch_seconds=5e-6,  # what a kernel launch takes on CUDA devices; ours
)
NVSWITCH_BANDWIDTH = 300e9  # bytes/s out of a module: twelve NVLinks of 25 GB/s, "DGX A100" data sheet (NVIDIA 2020)
NETWORK_BANDWIDTH = 25e9  # bytes/s out of a module: ConnectX-6, 200 Gbit/s InfiniBand each, same data sheet
NVSWITCH_LATENCY = 10e-6  # seconds; ours: the order of one asynchronous copy between two GPUs
NETWORK_LATENCY = 12e-6  # seconds; ours: the same and about 2 us on the wire


def build(*, servers: int = 1, devices: int = 8) -> Cluster:
    """`devices` modules in each server; what leaves a module shares its NVLinks, or its network card."""
    between = Level(servers, NETWORK_BANDWIDTH, NETWORK_LATENCY, "device")
    within = Level(devices, NVSWITCH_BANDWIDTH, NVSWITCH_LATENCY, "device")
    return hierarchical(f"dgx_a100:servers={servers},devices={devices}", A100, (between, within))
