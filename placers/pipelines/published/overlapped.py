"""Overlapped: data parallelism as DAPPLE's released program estimates it, next to its pipelines (`released`).

Gradients are summed up layer by layer, beginning with the last, while the backward pass goes on. Where a sum takes
longer than what is computed meanwhile, the step takes that much longer, but for what earlier sums left unused:

    backward   | layer 3 | layer 2 | layer 1 |               half of a layer's time is its backward pass
    sums                 | 3 | 2 .......| 1 .......|         drift: what of them is left at the end

With priorities by layer (P3: Jayarajan et al. 2019) the forward pass of the next step hides sums, too. The program
takes the forward times of the layers in the opposite order there. So does this, to state what it states.

Source: github.com/AlibabaPAI/DAPPLE, `cc_overlap.rs` and `data_parallel.rs`, programs in Rust; what is here is written
from their formulas.
"""

import numpy as np

from envs.pipelines.layers import Layers
from placers.pipelines.published.dapple_program import sum_seconds
from placers.pipelines.published.device_policies import Counts


def data_parallel_seconds(
    layers: Layers, sizes: Counts, *, overlap: bool = True, with_forward: bool = False, accumulated: int = 1
) -> float:
    """Seconds of a step on all devices; `sizes` are those of each server.

    Without `overlap` gradients are summed up at the end. `with_forward` hides sums behind the next forward pass, too.
    Of `accumulated` parts of a device's share of the batch, which fit memory one at a time, only the last one hides
    sums.
    """
    devices = sum(sizes)
    computing = float((layers.forward + layers.backward).sum()) / devices
    if not overlap:
        return computing + sum_seconds(sizes, float(layers.weights.sum()))
    half = (layers.forward + layers.backward) / 2 / (devices * accumulated)
    sums = np.array([sum_seconds(sizes, float(weights)) for weights in layers.weights])
    hidden = half + half[::-1] if with_forward else half  # behind the sum of each layer's successor
    drift, unused = float(sums[0]), 0.0
    for summed, behind in zip(sums[1:], hidden[:-1], strict=True):
        lacking = float(summed - behind) - unused
        unused = max(-lacking, 0.0)
        drift += max(lacking, 0.0)
    return computing + drift
