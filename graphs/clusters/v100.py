"""NVIDIA V100 (SXM2, 16 GB) modules joined by NVLink 2.0, as in one half of a DGX-1: unequal links."""

from __future__ import annotations

import numpy as np

from graphs.cluster import Cluster
from graphs.devices.catalogue import device, link
from graphs.devices.topology import named_by_kind
from graphs.foundation.errors import InputError

CONFIGURATIONS = ("devices=4",)

# NVLinks between the first four GPUs of a DGX-1 with V100, as `nvidia-smi topo -m` prints them (NV1, NV2).
LINKS = ((0, 1, 1, 2), (1, 0, 2, 1), (1, 2, 0, 2), (2, 1, 2, 0))


def build(*, devices: int = 4) -> Cluster:
    """Equal modules; each ordered pair has a channel of its own, over one NVLink or two.

    Raises InputError for other than one to four devices: further ones would not be joined directly.
    """
    if not 1 <= devices <= len(LINKS):
        raise InputError(f"v100: devices is {devices}; expected 1 to {len(LINKS)}, which NVLink joins directly")
    nvlinks = link("nvlink2")  # six of a module
    return Cluster(
        f"v100:devices={devices}",
        named_by_kind([device("v100")] * devices),
        latency=np.full((devices, devices), nvlinks.latency_seconds),
        bandwidth=np.array(LINKS)[:devices, :devices] * nvlinks.bandwidth / 6,
        channel=np.arange(devices**2).reshape(devices, devices),
        gap=np.zeros(devices**2),
        multicast=np.zeros(devices**2, np.bool_),
    )
