"""Whether a machine is busy with something else while it is measured: a reference that should always take equally long.

Other programs share caches, memory and power with what is measured, so that even the processor time of one thread grows
by tens of percent. What takes equally long at all times shows it, if it is timed before, after and in between.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphs.op_graph import Floats, Ints

QUIET = 0.25  # of what is repeated: the share that other programs disturbed least
TOLERATED = 0.1  # by which the reference may move
EVERY = 10.0  # seconds between two looks


def undisturbed(seconds: Floats) -> Ints:
    """Which of repeated measurements of one thing, (repeats,) seconds, count: the shortest quarter, but at least one.

    What else happens on a machine only ever makes them longer.
    """
    count = max(round(QUIET * len(seconds)), 1)
    return np.argsort(seconds, kind="stable")[:count].astype(np.int64)


def quiet_seconds(seconds: Floats) -> float:
    """The mean of those that count."""
    return float(seconds[undisturbed(seconds)].mean())


@dataclass
class BusyGuard:
    """Times a reference again and again."""

    reference: Callable[[], Sequence[Sequence[float]]]
    """Seconds that the reference takes now: of each device one number, or several that are equal on a quiet machine."""
    looks: list[Sequence[Sequence[float]]] = field(default_factory=list)
    """What it took so far."""
    _looked: float = 0.0

    def look(self) -> None:
        """Time the reference."""
        self.looks.append(self.reference())
        self._looked = time.monotonic()

    def look_now_and_then(self) -> None:
        """Time it if that was long ago."""
        if not self.looks or time.monotonic() - self._looked > EVERY:
            self.look()

    @property
    def range(self) -> tuple[float, float]:
        """The least and the most that it took, in seconds, on the device where these are furthest apart."""
        of_devices = [[seconds for look in device for seconds in look] for device in zip(*self.looks, strict=True)]
        ranges = [(min(taken), max(taken)) for taken in of_devices]
        return max(ranges, key=lambda each: each[1] / each[0], default=(1.0, 1.0))

    def warning(self, remedy: str) -> str:
        """What to say of it, with what to do about it; empty if the machine was quiet enough."""
        least, most = self.range
        if most / least - 1 <= TOLERATED:
            return ""
        return (
            f"this machine was busy with something else while it was measured: a reference product took between "
            f"{1e3 * least:.3g} and {1e3 * most:.3g} ms, {most / least - 1:.0%} more; {remedy}"
        )
