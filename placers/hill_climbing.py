"""Hill climbing from random placements: a change is kept if it is no worse, and a climb that stalls starts anew."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.plan import Plan
from envs.simulator import Simulator
from graphs.errors import InputError
from graphs.problem import Problem
from placers.annealing import energy
from placers.searching.moves import Moves
from placers.searching.spec import spec_of
from placers.searching.unit_graph import UnitGraph


@dataclass(frozen=True)
class HillClimbing:
    """What annealing is without temperature, and without a good start."""

    patience: int = 500
    """Changes in vain after which a new climb begins."""

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise InputError(f"hill_climbing: patience is {self.patience}; expected at least 1")

    @property
    def name(self) -> str:
        """Its spec."""
        return spec_of("hill_climbing", self)

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> Plan:
        """The best placement seen in exactly `budget` simulations; with none, a random one."""
        simulator, generator = Simulator(problem), np.random.default_rng(seed)
        moves = Moves(UnitGraph.of(problem, simulator.costs), generator)
        units, devices = problem.graph.num_units, len(problem.cluster)
        best = current = generator.integers(devices, size=units)
        best_energy = here = np.inf
        in_vain = 0
        while simulator.simulations < budget:
            restarts = not np.isfinite(here) or in_vain >= self.patience
            proposal = generator.integers(devices, size=units) if restarts else moves.propose(current)
            outcome = simulator.run(proposal)
            found = float(energy(outcome.step_seconds, outcome.peak_bytes, problem.cluster.memory_bytes))
            in_vain = 0 if restarts or found < here else in_vain + 1
            if restarts or found <= here:
                current, here = proposal, found
            if found < best_energy:
                best, best_energy = proposal, found
        return Plan.of_units(problem, best, placer=self.name, seed=seed, simulations=simulator.simulations)


def build(*, patience: int = 500) -> HillClimbing:
    """Hill climbing; HillClimbing describes the knob."""
    return HillClimbing(patience)
