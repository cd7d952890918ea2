"""The testbed of PipeTransformer (He et al. 2021, section 5.1): servers of eight Quadro RTX 5000 on InfiniBand."""

from __future__ import annotations

from graphs.cluster import GIB, Cluster, Device
from graphs.topology import Level, hierarchical

CONFIGURATIONS = ("servers=2,devices=8", "servers=1,devices=8")

RTX_5000 = Device(
    "gpu",
    "gpu",
    flops_per_second=11.2e12,  # single precision, "Quadro RTX 5000" data sheet (NVIDIA 2018)
    bytes_per_second=448e9,  # same data sheet
    memory_bytes=16 * GIB,  # same data sheet, and the paper
    launch_seconds=5e-6,  # what a kernel launch takes on CUDA devices; ours
)
PCIE_BANDWIDTH = 15.754e9  # bytes/s, 16 lanes of PCIe 3.0, as in the paper
INFINIBAND_BANDWIDTH = 5e9  # bytes/s, as in the paper
PCIE_LATENCY = 10e-6  # seconds; ours
INFINIBAND_LATENCY = 12e-6  # seconds; ours: a copy to the GPU's memory and about 2 us on the wire


def build(*, servers: int = 2, devices: int = 8) -> Cluster:
    """`devices` GPUs in each server on PCIe, one InfiniBand card per server."""
    between = Level(servers, INFINIBAND_BANDWIDTH, INFINIBAND_LATENCY, "group")
    within = Level(devices, PCIE_BANDWIDTH, PCIE_LATENCY, "device")
    return hierarchical(f"pipetransformer:servers={servers},devices={devices}", RTX_5000, (between, within))
