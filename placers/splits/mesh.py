"""Mesh: devices in an array, row-major, with one axis for each time that ops are divided, and what its links cost.

    two servers of four devices as a mesh (2, 2, 2)
        axis 0   0-4  1-5  2-6  3-7      between the servers: all through two network cards
        axis 1   0-2  1-3  4-6  5-7      within
        axis 2   0-1  2-3  4-5  6-7

Tofu counts bytes, whatever they pass through (Wang et al. 2019, section 5); with seconds the search knows better than
to divide a large tensor between servers.
"""

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np

from envs.plans.mesh import prime_factors
from graphs.cluster import Cluster
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from placers.splits.pricing import Prices


def prices_of_links(cluster: Cluster, devices: Sequence[int], mesh: Sequence[int]) -> Prices:
    """Seconds on a cluster's links, for devices in this order, (devices,), and seconds of computing.

    What passes along an axis is shared out evenly over all pairs of devices that differ in their place on this axis
    alone; pairs whose links share a channel take turns, and the slowest channel counts. Raises InputError for a mesh of
    another number of devices.
    """
    if math.prod(mesh) != len(devices):
        raise InputError(f"a mesh of {' x '.join(map(str, mesh))} has {math.prod(mesh)} devices, got {len(devices)}")
    per_byte, per_message = [], []
    for axis in range(len(mesh)):
        pairs = _pairs(devices, mesh, axis)
        each = np.bincount(cluster.links[pairs], 1 / cluster.bandwidth[pairs]) / max(len(pairs[0]), 1)
        per_byte.append(float(each.max(initial=0.0)))
        per_message.append(float(np.bincount(cluster.links[pairs], cluster.latency[pairs]).max(initial=0.0)))
    return Prices(tuple(per_byte), tuple(per_message), 1.0)


def best_mesh(cluster: Cluster, devices: Sequence[int]) -> tuple[int, ...]:
    """The prime factors of the number of devices, in an order in which few axes mix fast and slow links.

    Of several it is the one with the least time to gather a tensor over all axes, so that slow axes come first, and
    then the one with the largest factors first.
    """

    def key(mesh: tuple[int, ...]) -> tuple[float, ...]:
        gathered, groups = 0.0, 1
        for length, seconds in zip(mesh, prices_of_links(cluster, devices, mesh).per_byte, strict=True):
            gathered += seconds * (length - 1) * groups
            groups *= length
        mixed = sum(len(np.unique(cluster.bandwidth[_pairs(devices, mesh, axis)])) > 1 for axis in range(len(mesh)))
        return mixed, round(gathered, 15), *(-length for length in mesh)

    return min(set(permutations(prime_factors(len(devices)))), key=key)


def _pairs(devices: Sequence[int], mesh: Sequence[int], axis: int) -> tuple[Ints, Ints]:
    """(pairs,) and (pairs,) the devices of all ordered pairs that differ in their place on one axis alone."""
    placed = np.array(devices, np.int64).reshape(tuple(mesh))
    lines = np.moveaxis(placed, axis, -1).reshape(-1, mesh[axis])
    source, target = np.nonzero(~np.eye(mesh[axis], dtype=np.bool_))
    return lines[:, source].ravel(), lines[:, target].ravel()
