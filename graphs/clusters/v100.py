"""NVIDIA V100 (SXM2, 16 GB) modules joined by NVLink 2.0, as in a DGX-1: by one link, by two, or by PCIe alone."""

import numpy as np

from graphs.cluster import Cluster
from graphs.devices.catalogue import device, link
from graphs.devices.topology import named_by_kind
from graphs.foundation.errors import InputError

CONFIGURATIONS = ("devices=4",)

# NVLinks between the GPUs of a DGX-1 with V100, as `nvidia-smi topo -m` prints them (NV1, NV2; SYS is none).
LINKS = (
    (0, 1, 1, 2, 2, 0, 0, 0), (1, 0, 2, 1, 0, 2, 0, 0), (1, 2, 0, 2, 0, 0, 1, 0), (2, 1, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 1, 1, 2), (0, 2, 0, 0, 1, 0, 2, 1), (0, 0, 1, 0, 1, 2, 0, 2), (0, 0, 0, 1, 2, 1, 2, 0),
)  # fmt: skip


def build(*, devices: int = 4) -> Cluster:
    """Equal modules; each ordered pair has a channel of its own, over one NVLink or two.

    Pairs without NVLink share the sender's PCIe. Raises InputError for other than one to eight devices.
    """
    if not 1 <= devices <= len(LINKS):
        raise InputError(f"v100: devices is {devices}; expected 1 to {len(LINKS)}, as many as a DGX-1 has")
    nvlinks, pcie = link("nvlink2"), link("pcie3x16")  # six NVLinks of a module
    count = np.array(LINKS)[:devices, :devices]
    source, pair = np.indices(count.shape)[0], np.arange(devices**2).reshape(count.shape)
    return Cluster(
        f"v100:devices={devices}",
        named_by_kind([device("v100")] * devices),
        latency=np.where(count > 0, nvlinks.latency_seconds, pcie.latency_seconds),
        bandwidth=np.where(count > 0, count * nvlinks.bandwidth / 6, pcie.bandwidth),
        channel=np.where(count > 0, pair, source * (devices + 1)),
    )
