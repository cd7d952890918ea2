"""Simulated annealing from the best cheap placement (Kirkpatrick et al. 1983): the rival to beat.

The energy of a placement is the log of its step time, so that temperatures mean the same for every problem; memory
that overflows adds more than any step time can make up for. Moves and temperatures are our choice, tuned on recurrent,
convolutional and attention-like graphs for 100 to 20,000 simulations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.plan import Plan
from envs.simulator import Simulator
from graphs.errors import InputError
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers import Placer
from placers.heft import Heft
from placers.human_expert import HumanExpert
from placers.searching.moves import Moves
from placers.searching.spec import spec_of
from placers.searching.unit_graph import UnitGraph
from placers.single_device import SingleDevice

OVERFLOW = 10.0  # energy of any overflow of memory: as much as a step that takes 20,000 times longer
STARTS: tuple[Placer, ...] = (Heft(), HumanExpert(), SingleDevice())


@dataclass(frozen=True)
class Annealing:
    """Many small changes, kept if they help, or by chance while it is hot."""

    hot: float = 0.002
    """First temperature: the relative slowdown that is accepted with probability 1/e."""
    cold: float = 0.0002
    """Last temperature."""

    def __post_init__(self) -> None:
        if not 0 < self.cold <= self.hot:
            raise InputError(f"annealing: expected 0 < cold <= hot, got cold={self.cold}, hot={self.hot}")

    @property
    def name(self) -> str:
        """Its spec."""
        return spec_of("annealing", self)

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> Plan:
        """The best placement seen in exactly `budget` simulations; with none, HEFT's.

        The first simulations compare the starts: HEFT, the human expert and a single device, as far as they go.
        """
        simulator = Simulator(problem)
        starts = np.stack([_start(problem, placer) for placer in STARTS[: max(budget, 1)]])
        if budget < 1:
            return Plan.of_units(problem, starts[0], placer=self.name, seed=seed)
        walk = Walk(simulator, starts, np.random.default_rng(seed))
        for temperature in np.geomspace(self.hot, self.cold, budget - simulator.simulations):
            walk.step(temperature)
        return Plan.of_units(problem, walk.best, placer=self.name, seed=seed, simulations=simulator.simulations)


def build(*, hot: float = 0.002, cold: float = 0.0002) -> Annealing:
    """Annealing with the given temperatures; Annealing describes them."""
    return Annealing(hot, cold)


def energy(step_seconds: Floats | float, peak_bytes: Floats, memory_bytes: Floats) -> Floats:
    """(...,) log of the step time, and OVERFLOW times one plus the log of how far memory overflows.

    `step_seconds` is (...,), `peak_bytes` (..., devices) and `memory_bytes` (devices,). Among placements that do not
    fit, the one that is nearest to fitting has least energy, so annealing repairs a start that does not fit.
    """
    ratio = np.maximum(peak_bytes, 1.0) / np.maximum(memory_bytes, 1.0)
    overflow = np.log(np.maximum(ratio, 1.0)).sum(axis=-1)
    penalty = np.where(overflow > 0, OVERFLOW * (1.0 + overflow), 0.0)
    total: Floats = np.log(np.maximum(step_seconds, 1e-30)) + penalty
    return total


class Walk:
    """A placement that changes step by step, and the best one it has been."""

    def __init__(self, simulator: Simulator, starts: Ints, generator: np.random.Generator) -> None:
        """Simulates the starts, (starts, units), and begins at the best of them."""
        self._simulator = simulator
        self._memory = simulator.problem.cluster.memory_bytes
        self._moves = Moves(UnitGraph.of(simulator.problem, simulator.costs), generator)
        self._generator = generator
        outcomes = simulator.run_batch(starts)
        energies = energy(outcomes.step_seconds, outcomes.peak_bytes, self._memory)
        self.best = self.current = starts[energies.argmin()]
        self.best_energy = self.energy = float(energies.min())

    def step(self, temperature: float) -> None:
        """Try one change: one simulation."""
        proposal = self._moves.propose(self.current)
        outcome = self._simulator.run(proposal)
        change = float(energy(outcome.step_seconds, outcome.peak_bytes, self._memory)) - self.energy
        if change <= 0 or self._generator.random() < np.exp(-change / temperature):
            self.current, self.energy = proposal, self.energy + change
        if self.energy < self.best_energy:
            self.best, self.best_energy = self.current, self.energy


def _start(problem: Problem, placer: Placer) -> Ints:
    """(units,) the devices that a placer chooses without simulating."""
    per_unit = np.empty(problem.graph.num_units, np.int64)
    per_unit[problem.graph.units] = placer.place(problem, budget=0).placement
    return per_unit
