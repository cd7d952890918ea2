"""NVIDIA P100 (PCIe, 16 GB) GPUs in one server, joined by PCIe 3.0: the hardware of GDP's experiments."""

from __future__ import annotations

from graphs.cluster import GIB, Cluster, Device

CONFIGURATIONS = ("devices=2", "devices=4", "devices=8")

P100 = Device(
    "gpu",
    "gpu",
    flops_per_second=9.3e12,  # single precision, "Tesla P100 PCIe" data sheet (NVIDIA 2016)
    bytes_per_second=732e9,  # HBM2 of the 16 GB model, same data sheet
    memory_bytes=16 * GIB,  # same data sheet
    launch_seconds=5e-6,  # what a kernel launch takes on CUDA devices; ours, no source gives one for this GPU
)
PCIE_BANDWIDTH = 12e9  # bytes/s; ours: about three quarters of the 15.75 GB/s of PCIe 3.0 x16 reach an application
PCIE_LATENCY = 10e-6  # seconds; ours: the order of one asynchronous copy between two GPUs


def build(*, devices: int = 2) -> Cluster:
    """Equal GPUs; the transfers that leave one GPU share its PCIe lanes, hence its channel."""
    return Cluster.uniform(
        f"p100:devices={devices}", P100, devices, latency=PCIE_LATENCY, bandwidth=PCIE_BANDWIDTH, shared_out=True
    )
