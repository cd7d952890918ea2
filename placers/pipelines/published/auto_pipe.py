"""AutoPipe: how a pipeline is cut, and how many devices it needs (He et al. 2021, section 3.2, algorithm 1).

The size of a sub-layer is its number of parameters, in millions. The unit counts: the variance in the rule is not
compared with a square.
"""

from collections.abc import Sequence

import numpy as np

MILLION = 1e6
BYTES_PER_PARAMETER = 4  # single precision, as in the paper's experiments

# micro-batches of a step by the devices of a pipeline; the best of 1 to 6 for each device, as profiled (figure 11)
_MICRO_BATCHES = {8: 16, 4: 16, 2: 16, 1: 4}
_PER_DEVICE = 2  # for lengths that the paper does not have; ours


def balance(sizes: Sequence[float], devices: int) -> tuple[int, ...]:
    """(devices,) how many sub-layers each stage has, given their sizes in order.

    A stage takes the next one while it stays below the mean of what is left per stage plus the variance of the sizes
    left, per stage; the last takes the rest. A stage may be empty: the last has what no other one took.
    """
    counts, first, left = list[int](), 0, sum(sizes)
    for stage in range(devices - 1):
        most = left / (devices - stage) + float(np.var(sizes[first:] or [0.0])) / (devices - stage)
        end, size = first, 0.0
        while end < len(sizes) and size + sizes[end] < most:
            size += sizes[end]
            left -= sizes[end]
            end += 1
        counts.append(end - first)
        first = end
    return (*counts, len(sizes) - first)


def stage_sizes(sizes: Sequence[float], devices: int) -> tuple[float, ...]:
    """(devices,) the size of each stage of `balance`."""
    ends = np.cumsum(balance(sizes, devices))
    return tuple(
        float(sum(sizes[end - count : end])) for end, count in zip(ends, np.diff(ends, prepend=0), strict=True)
    )


def shortened(sizes: Sequence[float], devices: int, most: float) -> int:
    """How many devices a pipeline of this many needs for the sub-layers that are still trained.

    It is halved as long as no stage is larger than the largest was when all layers were trained (line 30 says "smaller
    than", the paper's text and the released program "at most", as here).
    """
    while devices % 2 == 0 and max(stage_sizes(sizes, devices // 2)) <= most:
        devices //= 2
    return devices


def micro_batches(devices: int) -> int:
    """How many micro-batches a step has on a pipeline of this many devices."""
    return _MICRO_BATCHES.get(devices, _PER_DEVICE * devices)
