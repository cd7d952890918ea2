"""NVIDIA V100 (SXM2, 16 GB) modules joined by NVLink 2.0, as in one half of a DGX-1: unequal links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphs.cluster import GIB, Cluster, Device
from graphs.foundation.errors import InputError

CONFIGURATIONS = ("devices=4",)

V100 = Device(
    "gpu",
    "gpu",
    flops_per_second=15.7e12,  # single precision, "Tesla V100" data sheet (NVIDIA 2017)
    bytes_per_second=900e9,  # HBM2, same data sheet
    memory_bytes=16 * GIB,  # same data sheet
    launch_seconds=5e-6,  # what a kernel launch takes on CUDA devices; ours, no source gives one for this GPU
)
LINK_BANDWIDTH = 25e9  # bytes/s of one NVLink 2.0 link in one direction, "Tesla V100 GPU architecture" (NVIDIA 2017)
LINK_LATENCY = 10e-6  # seconds; ours: the order of one asynchronous copy between two GPUs
# NVLinks between the first four GPUs of a DGX-1 with V100, as `nvidia-smi topo -m` prints them (NV1, NV2).
LINKS = ((0, 1, 1, 2), (1, 0, 2, 1), (1, 2, 0, 2), (2, 1, 2, 0))


def build(*, devices: int = 4) -> Cluster:
    """Equal modules; each ordered pair has a channel of its own, over one NVLink or two.

    Raises InputError for other than one to four devices: further ones would not be joined directly.
    """
    if not 1 <= devices <= len(LINKS):
        raise InputError(f"v100: devices is {devices}; expected 1 to {len(LINKS)}, which NVLink joins directly")
    return Cluster(
        f"v100:devices={devices}",
        tuple(replace(V100, name=f"gpu:{i}") for i in range(devices)),
        latency=np.full((devices, devices), LINK_LATENCY),
        bandwidth=np.array(LINKS)[:devices, :devices] * LINK_BANDWIDTH,
        channel=np.arange(devices**2).reshape(devices, devices),
        gap=np.zeros(devices**2),
        multicast=np.zeros(devices**2, np.bool_),
    )
