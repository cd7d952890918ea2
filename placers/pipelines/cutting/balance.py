"""Balance: blocks of a chain with about equal costs: the least that the largest can cost, or as two libraries cut it.

What the libraries cut need not have the least bottleneck: it is what their users get.
"""

import numpy as np

from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints
from placers.pipelines.cutting.chain import least_bottleneck

ROUNDING = 1e-9  # of sums of scaled costs: else a layer could go to and fro for ever


def least_partition(costs: Floats, blocks: int) -> Ints:
    """(layers,) the block of each layer such that the largest sum of costs, (layers,), is least; none is empty."""
    nothing = np.zeros(len(costs))
    found = least_bottleneck(
        np.repeat(costs[:, None], blocks, axis=1), nothing, nothing, np.zeros(blocks), may_be_empty=False
    )
    assert found is not None  # nothing is held, so all partitions keep to the limits
    return found


def block_partition(costs: Floats, blocks: int) -> Ints:
    """(layers,) the block of each layer by torchgpipe's `balance` (Kim et al. 2020): sums that differ by at most one.

    That is after costs, (layers,), were scaled to reach from 0 to 1. From blocks of equal length, the block with the
    least sum takes a layer from its neighbour on the side of that with the largest, again and again (Barany and
    Grinberg 2015). Raises InputError for fewer layers than blocks.
    """
    count = len(costs)
    if not 1 <= blocks <= count:
        raise InputError(f"{count} layers cannot be cut into {blocks} blocks; choose from 1 to {count}")
    spread = costs.max() - costs.min()
    before = np.concatenate([[0.0], np.cumsum((costs - costs.min()) / (spread or 1.0))])
    ends = [count // blocks * (block + 1) for block in range(blocks - 1)] + [count]
    while True:
        sums = np.diff(before[[0, *ends]])
        largest = blocks - 1 - int(sums[::-1].argmax())  # the last of several
        if sums[largest] <= sums.min() + 1 + ROUNDING:
            return np.repeat(np.arange(blocks), np.diff([0, *ends]))
        giver = -1
        while giver != largest:
            least = int(np.diff(before[[0, *ends]]).argmin())
            if least == largest:
                break
            side = -1 if largest < least else 1
            while (giver := least + side) != largest and _length(ends, giver) == 0:
                least = giver  # it has nothing to give; the program fails there
            ends[min(least, giver)] += side


def _length(ends: list[int], block: int) -> int:
    """How many layers a block has."""
    return ends[block] - (ends[block - 1] if block else 0)


def histogram_partition(costs: Floats, blocks: int) -> Ints:
    """(layers,) the block of each layer by lingvo's `PartitionSequentialLayers`: by the share of costs up to it.

    A layer that brings the sum of costs, (layers,), to a share s of all is in block s times the number of blocks. Some
    blocks may have no layers. Where nothing costs anything, layers count.
    """
    done = np.cumsum(costs if costs.any() else np.ones(len(costs)))
    block: Ints = np.minimum((done / done[-1] * blocks).astype(np.int64), blocks - 1)
    return block
