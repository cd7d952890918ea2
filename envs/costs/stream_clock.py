"""How long a device takes for what it is issued, without what it takes to issue that.

    host      work work  begin  call call call  end   wait
    device          [ work ][ work ] begin [call][call][call] end

Two events on the device's stream have the time between them. The device works on something else while the host issues
the calls, so that neither Python, nor autograd, nor launches hold it up.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

MOST_CALLS = 100  # of a sample: as many kernels as may be queued before the host has to wait
MOST_WORK = 64  # calls of it; an operation that itself waits for the device never is behind the host
_SIDE = 2048  # of the square product that is the work, a third of a millisecond on an H100 in single precision


class Event(Protocol):
    """A `torch.Event` that times, recorded on a stream."""

    def query(self) -> bool:
        """Whether the device has come to it."""

    def synchronize(self) -> None:
        """Wait until it has."""

    def elapsed_time(self, other: Any, /) -> float:
        """Milliseconds from this one to the other."""


@dataclass
class StreamClock:
    """Clocks calls on a device that works off what it is issued."""

    event: Callable[[], Event]  # a new one, recorded now
    work: Callable[[], object]  # keeps the device busy for a while

    @classmethod
    def of(cls, device: torch.device) -> "StreamClock":
        """That of a device's current stream."""
        square = torch.ones(_SIDE, _SIDE, device=device)
        product = torch.empty_like(square)

        def event() -> Event:
            made = torch.Event(device, enable_timing=True)
            made.record(torch.accelerator.current_stream(device))
            return made

        def work() -> Tensor:
            return torch.mm(square, square, out=product)

        return cls(event, work)

    def seconds(self, call: Callable[[], object], calls: int) -> float:
        """Of each of some calls, one after the other."""
        work = 1
        while True:
            for _ in range(work):
                self.work()
            begin = self.event()
            for _ in range(calls):
                call()
            end = self.event()
            was_ahead = not begin.query()
            end.synchronize()
            if was_ahead or work >= MOST_WORK:
                return begin.elapsed_time(end) / 1e3 / calls
            work *= 2
