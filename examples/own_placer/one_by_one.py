"""One unit after another is moved to the device where the step is shortest, until no move helps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphs.foundation.by_name import Named
from placelab import PlacerResult, PreparedProblem, Problem


@dataclass(frozen=True)
class OneByOne(Named):
    """Coordinate descent from one device. The fields are knobs: `--placer one_by_one:rounds=3`."""

    rounds: int = 10
    """How often each unit may be moved, at most."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The seed decides the order in which units are tried; each one costs a simulation per device."""
        prepared, generator = PreparedProblem(problem), np.random.default_rng(seed)
        units, devices = len(problem.units), len(problem.cluster)
        placement, simulations = np.full(units, prepared.fastest_device), 0
        for _ in range(self.rounds):
            before = placement.copy()
            for unit in generator.permutation(units):
                if simulations + devices > budget:
                    break
                tried = np.tile(placement, (devices, 1))  # (devices, units): the unit on each device in turn
                tried[:, unit] = np.arange(devices)
                tried = problem.made_allowed(tried)  # ops may be bound to devices
                placement = tried[prepared.evaluate(tried).best()]  # the fastest that fits
                simulations += devices
            if (placement == before).all():
                break
        return PlacerResult.of_units(problem, placement, self.name, seed, simulations=simulations)


build = OneByOne
