"""Everything on one device: the fastest that holds it; where samples are pipelined, the fastest, as published."""

from dataclasses import dataclass

import numpy as np

from envs.costs.costs import unit_seconds
from envs.objectives import is_pipelined
from envs.plans.placer_result import PlacerResult
from envs.simulation.held_memory import HeldMemory
from envs.simulation.simulator import Simulator
from graphs.foundation.by_name import Named, unknown
from graphs.foundation.errors import InputError
from graphs.problem import Problem


@dataclass(frozen=True)
class SingleDevice(Named):
    """The fastest device on which everything fits, or the one with the most memory if it fits on none."""

    kind: str = ""
    """Only devices of this kind are considered, "cpu" for the processors; empty for all."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """One simulation measures the memory needed; without a budget, an estimate replaces it.

        Raises InputError if the cluster has no device of the kind.
        """
        simulator = Simulator(problem)
        asked = np.array([self.kind in ("", device.kind) for device in problem.cluster.devices])
        if not asked.any():
            kinds = {device.kind for device in problem.cluster.devices}
            raise InputError(f"cluster {problem.cluster.name!r}: {unknown('kind of device', self.kind, sorted(kinds))}")
        seconds = np.where(asked, unit_seconds(problem).sum(axis=0), np.inf)
        memory = np.where(asked, problem.cluster.memory_bytes, -1.0)
        device = int(seconds.argmin())
        placement = np.full(problem.graph.num_units, device)
        if not is_pipelined(problem):
            # what one device needs is the same on all of them, as is the order of the ops
            held = simulator.run(placement).peak_bytes if budget > 0 else HeldMemory.of(problem).on_devices(placement)
            fits = memory >= held[device]
            device = int(np.where(fits, seconds, np.inf).argmin() if fits.any() else memory.argmax())
            placement = np.full(problem.graph.num_units, device)
        return PlacerResult.of_units(problem, placement, self.name, seed, simulations=simulator.simulations)


build = SingleDevice
