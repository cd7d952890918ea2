"""NVIDIA P100 (PCIe, 16 GB) GPUs in one server, joined by PCIe 3.0: the hardware of GDP's experiments."""

from graphs.cluster import Cluster
from graphs.devices.catalogue import device, link

CONFIGURATIONS = ("devices=2", "devices=4", "devices=8")


def build(*, devices: int = 2) -> Cluster:
    """Equal GPUs; the transfers that leave one GPU share its PCIe lanes, hence its channel."""
    lanes = link("pcie3x16")
    return Cluster.uniform(
        f"p100:devices={devices}", device("p100"), devices, latency=lanes.latency_seconds, bandwidth=lanes.bandwidth,
        shared_out=True,
    )  # fmt: skip
