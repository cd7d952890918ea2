"""The testbed of PipeTransformer (He et al. 2021, section 5.1): servers of eight Quadro RTX 5000 on InfiniBand."""

from graphs.cluster import Cluster
from graphs.devices.catalogue import device, link
from graphs.devices.topology import Level, hierarchical

CONFIGURATIONS = ("servers=2,devices=8", "servers=1,devices=8")

PCIE_BANDWIDTH = 15.754e9  # bytes/s, 16 lanes of PCIe 3.0, as in the paper
INFINIBAND_BANDWIDTH = 5e9  # bytes/s, as in the paper


def build(*, servers: int = 2, devices: int = 8) -> Cluster:
    """`devices` GPUs in each server on PCIe, one InfiniBand card per server."""
    between = Level(servers, INFINIBAND_BANDWIDTH, link("infiniband100").latency_seconds, "group")
    within = Level(devices, PCIE_BANDWIDTH, link("pcie3x16").latency_seconds, "device")
    return hierarchical(f"pipetransformer:servers={servers},devices={devices}", device("rtx5000"), (between, within))
