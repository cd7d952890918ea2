"""Chains: layers or units in one order, cut into consecutive stages by dynamic programming."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints


def least_bottleneck(seconds: Floats, entering: Floats, memory: Floats, limits: Floats) -> Ints | None:
    """(devices,) the unit before which each device's stage ends, or None if no partition keeps to the limits.

    `seconds` is (units, devices), `entering` (units,) seconds to send what crosses before each unit, `memory` (units,)
    bytes, `limits` (devices,) bytes.
    """
    units, devices = seconds.shape
    time = np.concatenate([np.zeros((1, devices)), np.cumsum(seconds, axis=0)])
    held = np.concatenate([[0.0], np.cumsum(memory)])
    best = np.full((devices + 1, units + 1), np.inf)
    begin = np.zeros((devices + 1, units + 1), np.int64)
    best[0, 0] = 0.0
    for device in range(devices):
        for end in range(units + 1):
            starts = np.arange(end + 1)
            own = time[end, device] - time[starts, device]
            sent = np.where((starts > 0) & (starts < end), entering[np.minimum(starts, units - 1)], 0.0)
            slowest = np.maximum(best[device, : end + 1], np.maximum(own, sent))
            slowest[held[end] - held[starts] > limits[device]] = np.inf
            begin[device + 1, end] = int(slowest.argmin())
            best[device + 1, end] = slowest.min()
    if not np.isfinite(best[devices, units]):
        return None
    ends = [units]
    for device in range(devices, 1, -1):
        ends.append(int(begin[device, ends[-1]]))
    return np.array(ends[::-1], np.int64)


def blocks(seconds: Sequence[float], count: int) -> list[int]:
    """Sizes of `count` contiguous blocks of layers whose largest sum is least: GPipe's own partition.

    Huang et al. (2019), section 2.1, as torchgpipe balances by time; the classic linear partition. Of several, the
    one whose later blocks begin as early as they may. Raises InputError for more blocks than layers.
    """
    layers = len(seconds)
    if not 1 <= count <= layers:
        raise InputError(f"{count} blocks of {layers} layers; expected 1 to {layers}")
    total = np.concatenate([[0.0], np.cumsum(seconds)])
    cost = np.full((count + 1, layers + 1), np.inf)
    begin = np.zeros((count + 1, layers + 1), np.int64)
    cost[0, 0] = 0.0
    for block in range(1, count + 1):
        for end in range(block, layers + 1):
            largest = np.maximum(cost[block - 1, block - 1 : end], total[end] - total[block - 1 : end])
            begin[block, end] = block - 1 + int(largest.argmin())
            cost[block, end] = largest.min()
    ends = [layers]
    for block in range(count, 0, -1):
        ends.append(int(begin[block, ends[-1]]))
    return [int(size) for size in -np.diff(ends)][::-1]
