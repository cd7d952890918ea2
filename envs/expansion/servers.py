"""Servers: which of several devices are near each other. A cluster does not say so; its links do."""

from collections.abc import Sequence

import numpy as np

from graphs.algorithms.components import connected_components
from graphs.algorithms.order import numbered_by_first
from graphs.cluster import Cluster
from graphs.op_graph import Floats, Ints

_EQUAL = 1 - 1e-9  # links whose seconds differ by less are equally fast


MESSAGE = 2.0**20  # bytes; ours: of what links are compared by


def by_server(cluster: Cluster, devices: Sequence[int], sent_bytes: float = MESSAGE) -> tuple[Ints, Ints]:
    """(devices,) positions in the order of a ring that visits one server after another, and (devices,) their servers.

    A ring goes on to the nearest device, ties by position; near are devices that exchange `sent_bytes` soon. Servers
    are what only the slowest links join; devices with equal links are in one. They are numbered in the ring's order.
    """
    seconds = _seconds(cluster, devices, sent_bytes)
    slowest = seconds.max(initial=0.0, where=seconds < np.inf)
    near = seconds < slowest * _EQUAL
    if not near.any():
        return np.arange(len(devices)), np.zeros(len(devices), np.int64)
    server = connected_components(np.argwhere(near), len(devices))
    ring = _ring_order(seconds)
    server = numbered_by_first(server[ring])
    order = np.argsort(server, kind="stable")
    return ring[order], server[order]


def _ring_order(seconds: Floats) -> Ints:
    """(devices,) each one followed by the nearest that has not been visited."""
    left, order = seconds.copy(), [0]
    left[:, 0] = np.inf
    while len(order) < len(left):
        order.append(int(left[order[-1]].argmin()))
        left[:, order[-1]] = np.inf
    return np.array(order, np.int64)


def _seconds(cluster: Cluster, devices: Sequence[int], sent_bytes: float) -> Floats:
    """(devices, devices) seconds of an exchange; of a device with itself infinite."""
    pairs = np.ix_(devices, devices)
    with np.errstate(divide="ignore"):  # without a link, as from a device to itself, it never arrives
        seconds = cluster.latency[pairs] + sent_bytes / cluster.bandwidth[pairs]
    seconds = np.maximum(seconds, seconds.T)
    np.fill_diagonal(seconds, np.inf)
    return seconds
