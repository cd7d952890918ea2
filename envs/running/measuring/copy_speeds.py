"""How long copies take between the memories of a processor and of a GPU, in one process: a job for `Workers`.

PyTorch copies from memory that the system may page out by way of a buffer of its own; from pinned memory the GPU reads
by itself. A model's tensors are in the former, and what a `DataLoader` with `pin_memory=True` gives is in the latter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from envs.costs.profile_file import ProfiledMachine
from envs.costs.timing import OpTimer, torch_threads
from envs.running.clock import now
from envs.running.measuring.link_fits import WHILE_WAITED, Line, fitted
from envs.running.measuring.link_speeds import MACHINE_SAMPLES
from envs.running.processes import Process

SIZES = (256, 2**16, 2**20, 2**24, 2**27)  # bytes
WARM_UP = 2  # copies that do not count


class CopyTimes(NamedTuple):
    """What copies take in one direction."""

    pageable: Line
    pinned: Line


class TwoWayTimes(NamedTuple):
    """What copies take in both."""

    to_gpu: CopyTimes
    from_gpu: CopyTimes


def copies(device: torch.device, samples: int, sizes: Sequence[int] = SIZES) -> TwoWayTimes:
    """Time some copies of each size, in bytes. On a processor, which reads all memory alike, none is pinned."""
    lines = [_both_ways(device, samples, sizes, pinned) for pinned in (False, device.type != "cpu")]
    return TwoWayTimes(*(CopyTimes(*of_way) for of_way in zip(*lines, strict=True)))


def _both_ways(device: torch.device, samples: int, sizes: Sequence[int], pinned: bool) -> tuple[Line, Line]:
    """To the device, and from it."""
    taken: tuple[list[list[float]], list[list[float]]] = [], []
    for size in sizes:
        here = torch.ones(size, dtype=torch.uint8, pin_memory=pinned)
        there = torch.ones(size, dtype=torch.uint8, device=device)
        for (target, source), of_way in zip(((there, here), (here, there)), taken, strict=True):
            of_way.append([_seconds(target, source, device) for _ in range(WARM_UP + samples)][WARM_UP:])
    return fitted(sizes, np.array(taken[0]), WHILE_WAITED), fitted(sizes, np.array(taken[1]), WHILE_WAITED)


def _seconds(target: Tensor, source: Tensor, device: torch.device) -> float:
    """Of one copy, until it is there."""
    began = now(device)
    target.copy_(source, non_blocking=True)
    return now(device) - began


@dataclass(frozen=True)
class MeasureCopies:
    """Measure the copies between the processor and the device of one process, while the others wait."""

    rank: int
    samples: int

    def __call__(self, process: Process) -> TwoWayTimes | None:
        """None in the other processes."""
        return copies(process.device, self.samples) if process.rank == self.rank else None


@dataclass(frozen=True)
class MeasureProcessor:
    """What the processor next to the GPUs is, and the speeds that it reaches, in the first process."""

    threads: int

    def __call__(self, process: Process) -> ProfiledMachine | None:
        """None in the other processes."""
        if process.rank:
            return None
        with torch_threads(self.threads):
            return OpTimer(torch.device("cpu"), MACHINE_SAMPLES).machine
