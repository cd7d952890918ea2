"""Whether a machine is busy with something else while it is measured: a reference that should always take equally long.

Other programs share caches, memory and power with what is measured, so that even the processor time of one thread grows
by tens of percent. What takes equally long at all times shows it, if it is timed before, after and in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

TOLERATED = 0.1  # by which the reference may move
EVERY = 10.0  # seconds between two looks


@dataclass
class BusyGuard:
    """Times a reference again and again."""

    reference: Callable[[], float]
    """Seconds that the reference takes now."""
    taken: list[float] = field(default_factory=list)
    """Seconds that it took so far."""
    _looked: float = 0.0

    def look(self) -> None:
        """Time the reference."""
        self.taken.append(self.reference())
        self._looked = time.monotonic()

    def look_now_and_then(self) -> None:
        """Time it if that was long ago."""
        if not self.taken or time.monotonic() - self._looked > EVERY:
            self.look()

    @property
    def moved(self) -> float:
        """By which share the slowest look was longer than the fastest one; 0 without any."""
        return max(self.taken) / min(self.taken) - 1 if self.taken else 0.0

    def warning(self, remedy: str) -> str:
        """What to say of it, with what to do about it; empty if the machine was quiet enough."""
        if self.moved <= TOLERATED:
            return ""
        least, most = (1e3 * seconds for seconds in (min(self.taken), max(self.taken)))
        return (
            f"this machine was busy with something else while it was measured: a reference product took between "
            f"{least:.3g} and {most:.3g} ms, {self.moved:.0%} more; {remedy}"
        )
