"""m-TOPO (Jeon et al. 2020, "Baechi"): units in topological order, device after device, each filled evenly.

The cap of a device is an even share of what all units hold, plus the largest unit, and no more than its memory.
"""

from dataclasses import dataclass

import numpy as np

from envs.plans.placer_result import PlacerResult
from envs.simulation.held_memory import HeldMemory, Room
from graphs.foundation.by_name import Named
from graphs.problem import Problem


@dataclass(frozen=True)
class MemoryTopological(Named):
    """Balances memory, not time."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002 - nothing to search
        """Without any simulation."""
        held = HeldMemory.of(problem)
        devices = len(problem.cluster)
        cap = held.per_unit.sum() / devices + held.per_unit.max(initial=0.0)
        room = Room(held)
        placement = np.zeros(problem.graph.num_units, np.int64)
        device, filled = 0, 0.0
        for unit in problem.units.order.tolist():
            needed = held.per_unit[unit]
            is_full = filled + needed > cap or room.after(unit)[device] < 0
            if is_full and filled > 0 and device < devices - 1:
                device, filled = device + 1, 0.0
            placement[unit] = device
            filled += needed
            room.take(unit, device)
        return PlacerResult.of_units(problem, placement, self.name, seed)


build = MemoryTopological
