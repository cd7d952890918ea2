"""One server processor and P100 GPUs on its PCIe lanes: devices of unequal speed and memory."""

import numpy as np

from graphs.cluster import Cluster, check_count
from graphs.devices.catalogue import device, link
from graphs.devices.topology import named_by_kind

CONFIGURATIONS = ("gpus=1", "gpus=2")


def build(*, gpus: int = 1) -> Cluster:
    """The processor is device 0. The transfers that leave one device share its channel."""
    check_count(f"cpu_gpu:gpus={gpus}", 1 + gpus)
    devices = named_by_kind([device("server-cpu"), *[device("p100")] * gpus])
    lanes, pairs = link("pcie3x16"), (len(devices), len(devices))
    latency, bandwidth = np.full(pairs, lanes.latency_seconds), np.full(pairs, lanes.bandwidth)
    return Cluster(f"cpu_gpu:gpus={gpus}", devices, latency, bandwidth, channel=np.indices(pairs)[0])
