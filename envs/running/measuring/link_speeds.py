"""How long messages take between two processes, and what they cost them: jobs for `Workers`.

One way. Two idle processes send a message to and fro; half of the time is one way.

Processor time. One process sends messages while it computes, the other receives them while it computes, and both do
the same again without messages: the difference is what the messages cost each, whichever of its threads paid.

    sender     |compute|send|compute|send|compute|send| wait       processor time of all threads, less that of
    receiver   |compute  .  compute  .   compute   .  | wait       |compute|compute|compute|
"""

import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from envs.costs.profile_file import ProfiledMachine
from envs.costs.timing import OpTimer
from envs.running.clock import now
from envs.running.op_by_op.links import Links, Work
from envs.running.processes import Process
from graphs.op_graph import Floats

SIZES = (256, 4 * 2**10, 64 * 2**10, 512 * 2**10, 4 * 2**20)  # bytes
ONE_WAY_SAMPLES = 4  # for one of the others: they are short
MESSAGES, MOST_BYTES = 16, 2**25  # in a sample, at most
CHUNKS = 3  # products between two messages
REFERENCE_SAMPLES, MACHINE_SAMPLES = 5, 10
_SIDE, _GPU_SIDE = 128, 2048  # of the products that are computed
_REFERENCE_SIDE, _GPU_REFERENCE_SIDE = 1024, 8192


@dataclass(frozen=True)
class PairSamples:
    """What one of two processes measured."""

    one_way: Floats  # (sizes, samples) seconds
    as_sender: Floats  # (sizes, samples) seconds of its processor for a message that it sends
    as_receiver: Floats  # (sizes, samples) seconds for one that it receives


@dataclass(frozen=True)
class MeasurePair:
    """Measure the link of two processes, while the others wait."""

    lower: int
    higher: int
    sizes: tuple[int, ...] = SIZES
    samples: int = 20

    def __call__(self, process: Process) -> PairSamples | None:
        """None in the other processes."""
        links = Links(process.rank, [(self.lower, self.higher), (self.higher, self.lower)])
        if process.rank not in (self.lower, self.higher):
            return None
        ends = _Ends(process, self.higher if process.rank == self.lower else self.lower, links)
        ends.meet()  # what connects at the first message is not measured
        one_way = [[ends.one_way(size) for _ in range(ONE_WAY_SAMPLES * self.samples)] for size in self.sizes]
        costs = {
            sender == process.rank: np.array([ends.costs(size, sender, self.samples) for size in self.sizes])
            for sender in (self.lower, self.higher)
        }
        return PairSamples(np.array(one_way), costs[True], costs[False])


def reference_seconds(process: Process) -> list[float]:
    """What a product takes now, by the clock on the wall and, on a CPU, by that of the thread.

    The two are equal unless something else runs on the core.
    """
    is_cpu = process.device.type == "cpu"
    side = _REFERENCE_SIDE if is_cpu else _GPU_REFERENCE_SIDE
    square = torch.ones(side, side, device=process.device)
    times = []
    for _ in range(REFERENCE_SAMPLES + 2):  # the first product warms up
        times.append((now(process.device), *([time.thread_time()] if is_cpu else [])))
        square @ square
    taken = [np.subtract(after, before) for before, after in pairwise(times[1:])]
    quartiles: list[float] = np.percentile(taken, 25, axis=0).tolist()
    return quartiles


def machine(process: Process) -> ProfiledMachine:
    """What the process's device is, and the speeds that it reaches."""
    return OpTimer(process.device, MACHINE_SAMPLES).machine


class _Ends:
    """The two ends of a link, as one of the processes sees it."""

    def __init__(self, process: Process, other: int, links: Links) -> None:
        self._process, self._rank, self._other, self._links = process, process.rank, other, links
        side = _SIDE if process.device.type == "cpu" else _GPU_SIDE
        self._matrix = torch.ones(side, side, device=process.device)
        self._buffers: list[Tensor] = []

    def meet(self) -> None:
        """Wait for the other one."""
        self._to_and_fro(self._some(1, 1)[0])

    def one_way(self, size: int) -> float:
        """Seconds of a message to the other one, while both do nothing else."""
        buffer = self._some(1, size)[0]
        self.meet()
        began = now(self._process.device)
        self._to_and_fro(buffer)
        return (now(self._process.device) - began) / 2

    def costs(self, size: int, sender: int, samples: int) -> list[float]:
        """(samples,) seconds of this processor for each message of one of the two, in addition to what both compute."""
        buffers, is_sender = self._some(int(np.clip(MOST_BYTES // size, 1, MESSAGES)), size), sender == self._rank
        found = []
        for _ in range(samples):
            taken = []
            for passing in (False, True):
                self.meet()
                taken.append(self._computing(buffers, is_sender, passing))
            found.append((taken[1] - taken[0]) / len(buffers))
        return found

    def _computing(self, buffers: list[Tensor], is_sender: bool, passing: bool) -> float:
        """Seconds of this processor to compute something for each buffer and, if they pass, for the messages."""
        began, works = self._clock(), list[Work]()
        if passing and not is_sender:
            works = [self._links.receive(buffer, self._other, tag) for tag, buffer in enumerate(buffers)]
        for tag, buffer in enumerate(buffers):
            for _ in range(CHUNKS):
                self._matrix @ self._matrix
            if passing and is_sender:
                works.append(self._links.send(buffer, self._other, tag))
        for work in works:
            work.wait()
        return self._clock() - began

    def _clock(self) -> float:
        """Seconds of the processor: of all threads on a CPU, and on the wall, when a GPU has done its work."""
        return time.process_time() if self._process.device.type == "cpu" else now(self._process.device)

    def _to_and_fro(self, buffer: Tensor) -> None:
        steps = (self._links.send, self._links.receive)
        for step in steps if self._rank < self._other else steps[::-1]:
            step(buffer, self._other, 0).wait()

    def _some(self, count: int, size: int) -> list[Tensor]:
        """Buffers of some bytes; the same ones again if they are alike."""
        if len(self._buffers) != count or self._buffers[0].numel() != size:
            device = self._process.device
            self._buffers = [torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(count)]
        return self._buffers
