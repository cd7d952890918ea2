"""Everything on one device: the fastest that holds it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.plan import Plan
from envs.simulator import Simulator
from graphs.op_graph import Floats
from graphs.problem import Problem
from placers.searching.held_memory import HeldMemory
from placers.searching.unit_graph import unit_seconds


@dataclass(frozen=True)
class SingleDevice:
    """The fastest device on which everything fits, or the one with the most memory if it fits on none."""

    @property
    def name(self) -> str:
        """Its spec."""
        return "single_device"

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> Plan:
        """One simulation measures the memory needed; without a budget, an estimate replaces it."""
        simulator = Simulator(problem)
        seconds = unit_seconds(problem, simulator.costs).sum(axis=0)
        memory = problem.cluster.memory_bytes
        fits = memory >= _needed_bytes(simulator, int(seconds.argmin()), budget)
        device = int(np.where(fits, seconds, np.inf).argmin() if fits.any() else memory.argmax())
        placement = np.full(problem.graph.num_units, device)
        return Plan.of_units(problem, placement, placer=self.name, seed=seed, simulations=simulator.simulations)


def build() -> SingleDevice:
    """The placer; it has no knobs."""
    return SingleDevice()


def _needed_bytes(simulator: Simulator, device: int, budget: int) -> float:
    """Peak memory when one device does everything; the same on all of them, as is the order of the ops."""
    problem = simulator.problem
    placement = np.full(problem.graph.num_units, device)
    peak: Floats = simulator.run(placement).peak_bytes if budget > 0 else HeldMemory.of(problem).on_devices(placement)
    return float(peak[device])
