"""Domain randomisation (Tobin et al., 2017): a policy that has met many speeds and sizes learns what they mean.

On the same few clusters throughout, it learns the training graphs by heart instead, and places others worse.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphs.cluster import Cluster

LEAST_MEMORY = 0.6  # of what devices have: with less, most training graphs fit nowhere


def randomised(cluster: Cluster, spread: float, rng: np.random.Generator) -> Cluster:
    """A copy whose compute speed, memory and bandwidth are multiplied by a factor each, the same for all devices.

    The logarithm of a factor is uniform between those of 1 / spread and spread; memory loses no more than 40%.
    """
    speed, memory, bandwidth = np.exp(rng.uniform(-1, 1, 3) * np.log(spread))
    devices = tuple(
        replace(
            device,
            flops_per_second=device.flops_per_second * speed,
            bytes_per_second=device.bytes_per_second * speed,
            memory_bytes=device.memory_bytes * max(memory, LEAST_MEMORY),
        )
        for device in cluster.devices
    )
    return replace(cluster, devices=devices, bandwidth=cluster.bandwidth * bandwidth)
