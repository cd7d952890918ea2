"""Shared gradients: those of weights that several processes hold, added up after the backward passes.

Replicas of a stage hold the same weights, and so do stages that use a weight together, as an embedding that is also the
last layer. All of them add up what the others have, and then update alike.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache

import torch
from torch import Tensor, distributed, nn


@cache
def group_of(devices: tuple[int, ...]) -> distributed.ProcessGroup:
    """The processes of some devices, ascending; to be called by all processes, in the same order of groups."""
    found: distributed.ProcessGroup = distributed.new_group(list(devices))
    return found


class SharedGradients:
    """The weights of a process that others hold, too."""

    def __init__(
        self, holders: Mapping[str, tuple[int, ...]], weights: Mapping[str, nn.Parameter], bucket_bytes: float
    ) -> None:
        """`holders` are the devices of every trained weight, ascending, the same in all processes; `weights` are own.

        Gradients of up to `bucket_bytes` are added up together.
        """
        by_holders: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for name in sorted(holders):
            if len(holders[name]) > 1:
                by_holders[holders[name]].append(name)
        self._buckets: list[tuple[distributed.ProcessGroup, list[nn.Parameter]]] = []
        for devices in sorted(by_holders):
            group = group_of(devices)
            own = [weights[name] for name in by_holders[devices] if name in weights]
            self._buckets += [(group, bucket) for bucket in buckets_of(own, bucket_bytes)]

    def add_up(self) -> None:
        """Replace each gradient by the sum of those of all holders."""
        for group, weights in self._buckets:
            for each in weights:
                if each.grad is None:
                    each.grad = torch.zeros_like(each)
            together(group, [each.grad for each in weights if each.grad is not None])


def together(group: distributed.ProcessGroup, tensors: list[Tensor], *, source: int = -1) -> None:
    """Replace tensors of one type by their sums over a group or, with `source`, by what that device has."""
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    if source < 0:
        distributed.all_reduce(flat, group=group)
    else:
        distributed.broadcast(flat, source, group=group)
    for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.detach().copy_(part.view(tensor.shape))


def buckets_of(weights: Iterable[nn.Parameter], most: float) -> list[list[nn.Parameter]]:
    """Weights of one type after each other, as many together as there is room."""
    found: list[list[nn.Parameter]] = []
    room = 0.0
    for each in weights:
        size = each.numel() * each.element_size()
        if not found or size > room or found[-1][0].dtype != each.dtype:
            found.append([])
            room = most
        found[-1].append(each)
        room -= size
    return found
