"""Chains: layers or units in one order, cut into consecutive stages by dynamic programming."""

import numpy as np

from envs.simulation.compiled import compiled
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
    _fill(time, sending, held, limits, may_be_empty, best, begin)
    if not np.isfinite(best[devices, units]):
        return None
    ends = [units]
    for device in range(devices, 0, -1):
        ends.append(int(begin[device, ends[-1]]))
    return np.repeat(np.arange(devices), np.diff(ends[::-1]))


@compiled
def _fill(
    time: Floats, sending: Floats, held: Floats, limits: Floats, may_be_empty: bool, best: Floats, begin: Ints
) -> None:
    """Write the least bottleneck of all units before each on all devices before each, and where the last stage begins.

    `time`, (units + 1, devices), and `held`, (units + 1,), are sums over the units before each, and do not fall: from
    where a stage is slower than the best, or has no room, it does not begin earlier.
    """
    best[0, 0] = 0.0
    for device in range(len(limits)):
        for end in range(len(held)):
            least = np.inf
            for first in range(end, -1, -1):
                computing = time[end, device] - time[first, device]
                if computing > least or held[end] - held[first] > limits[device]:
                    break
                if first == end:
                    slowest = best[device, first] if may_be_empty else np.inf
                else:
                    slowest = max(computing, sending[first], best[device, first])
                if slowest <= least:
                    least, begin[device + 1, end] = slowest, first
            best[device + 1, end] = least
