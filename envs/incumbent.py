"""Incumbent: the best placement seen so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.simulation.simulator import Outcomes
from graphs.op_graph import Floats, Ints


@dataclass(eq=False)
class Incumbent:
    """The placement of least value among those offered, the first of equal ones."""

    placement: Ints | None = None  # (units,) device
    value: float = np.inf  # of the placement; infinite as long as none was offered that counts

    def offer(self, placement: Ints, value: float) -> bool:
        """Take a copy of a placement, (units,), if its value is less; returns whether it is."""
        is_better = value < self.value
        if is_better:
            self.placement, self.value = placement.copy(), float(value)
        return is_better

    def offer_fitting(self, placements: Ints, outcomes: Outcomes) -> None:
        """Take the fastest of (plans, units) placements that fits, if it is faster; its value is its seconds."""
        seconds: Floats = np.where(outcomes.fits, outcomes.step_seconds, np.inf)
        fastest = int(seconds.argmin())
        self.offer(placements[fastest], float(seconds[fastest]))
