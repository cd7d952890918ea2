"""Chains: layers or units in one order, cut into consecutive stages by dynamic programming."""

import numpy as np

from graphs.op_graph import Floats, Ints


def least_bottleneck(
    seconds: Floats, entering: Floats, memory: Floats, limits: Floats, *, may_be_empty: bool = True
) -> Ints | None:
    """(units,) the stage of each unit where the slowest stage is fastest; None if no partition keeps to the limits.

    There is a stage for each device. `seconds` is (units, devices), `entering` (units,) seconds to send what crosses
    before each unit, `memory` (units,) bytes, `limits` (devices,) bytes. Of equally good partitions it is the one whose
    later stages begin as early as they may.
    """
    units, devices = seconds.shape
    time = np.concatenate([np.zeros((1, devices)), np.cumsum(seconds, axis=0)])
    held = np.concatenate([[0.0], np.cumsum(memory)])
    sending = np.concatenate([[0.0], entering[1:], [0.0]])
    # best[d, e]: the least bottleneck of the units before e on the devices before d; the last begins at begin[d, e]
    best, begin = np.full((devices + 1, units + 1), np.inf), np.zeros((devices + 1, units + 1), np.int64)
    best[0, 0] = 0.0
    for device in range(devices):
        for end in range(units + 1):
            slowest = np.maximum(time[end, device] - time[: end + 1, device], sending[: end + 1])  # by where it begins
            slowest[end] = 0.0 if may_be_empty else np.inf
            slowest = np.maximum(slowest, best[device, : end + 1])
            slowest[held[end] - held[: end + 1] > limits[device]] = np.inf
            begin[device + 1, end] = int(slowest.argmin())
            best[device + 1, end] = slowest.min()
    if not np.isfinite(best[devices, units]):
        return None
    ends = [units]
    for device in range(devices, 0, -1):
        ends.append(int(begin[device, ends[-1]]))
    return np.repeat(np.arange(devices), np.diff(ends[::-1]))
