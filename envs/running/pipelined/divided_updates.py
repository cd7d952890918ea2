"""Divided updates: each replica updates some of the weights, and sends them to the others (stage 1 of ZeRO).

As PyTorch's ZeroRedundancyOptimizer has it: weights are not divided, but dealt out, the largest first, each to the
replica that has least. All replicas have the sums of all gradients, as without it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, distributed

from envs.running.pipelined.shared_gradients import buckets_of, together


class DividedUpdates:
    """Of one process."""

    def __init__(
        self, weights: Sequence[torch.nn.Parameter], devices: tuple[int, ...], group: distributed.ProcessGroup,
        bucket_bytes: float,
    ) -> None:  # fmt: skip
        """`devices` are those of the group, which all have such weights, in the same order.

        New values of up to `bucket_bytes` are sent together.
        """
        self._devices, self._group = devices, group
        dealt: list[list[torch.nn.Parameter]] = [[] for _ in devices]
        held = [0] * len(devices)
        for each in sorted(weights, key=lambda weight: -weight.nbytes):
            least = held.index(min(held))
            dealt[least].append(each)
            held[least] += each.nbytes
        self._dealt, self._buckets = dealt, [buckets_of(some, bucket_bytes) for some in dealt]

    def own(self, device: int) -> list[torch.nn.Parameter]:
        """The weights that a device updates."""
        return self._dealt[self._devices.index(device)]

    def gather(self) -> None:
        """Take from each replica the weights that it has updated."""
        for device, buckets in zip(self._devices, self._buckets, strict=True):
            for bucket in buckets:
                tensors: list[Tensor] = [*bucket]
                together(self._group, tensors, source=device)
