"""One server processor and P100 GPUs on its PCIe lanes: devices of unequal speed and memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphs.cluster import GIB, Cluster, Device, check_count
from graphs.clusters.p100 import P100, PCIE_BANDWIDTH, PCIE_LATENCY

CONFIGURATIONS = ("gpus=1", "gpus=2")

CPU = Device(
    "cpu:0",
    "cpu",
    flops_per_second=1e12,  # ours: the order of a 14-core Broadwell Xeon: 14 cores x 2 GHz x 32 FLOP = 0.9 TFLOP/s
    bytes_per_second=77e9,  # four channels of DDR4-2400, 19.2 GB/s each (JEDEC)
    memory_bytes=128 * GIB,  # ours: a usual size for a server of that age
    launch_seconds=1e-6,  # ours: what a framework takes to dispatch an op
)


def build(*, gpus: int = 1) -> Cluster:
    """The processor is device 0. The transfers that leave one device share its channel."""
    check_count(f"cpu_gpu:gpus={gpus}", 1 + gpus)
    devices = (CPU, *(replace(P100, name=f"gpu:{i}") for i in range(gpus)))
    pairs = (len(devices), len(devices))
    latency, bandwidth = np.full(pairs, PCIE_LATENCY), np.full(pairs, PCIE_BANDWIDTH)
    return Cluster(f"cpu_gpu:gpus={gpus}", devices, latency, bandwidth, channel=np.indices(pairs)[0])
