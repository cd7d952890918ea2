"""Annealing in plain Python, step by step: what the compiled loop must equal, and its peer in the benchmarks."""

from __future__ import annotations

import numpy as np

from envs.objectives import Evaluator
from graphs.op_graph import Ints
from graphs.problem import Problem

REGION = 10
OVERFLOW = 10.0


class PlainMoves:
    """Random changes of a placement."""

    def __init__(self, problem: Problem, generator: np.random.Generator) -> None:
        units, devices = len(problem.units), len(problem.cluster)
        self._generator = generator
        self._allowed = np.ones((units, devices), bool) if problem.allowed is None else problem.allowed
        self._movable = np.flatnonzero(self._allowed.sum(axis=1) > 1)
        offsets, neighbours, _ = problem.units.neighbours
        self._neighbours = np.split(neighbours, offsets[1:-1])

    def propose(self, placement: Ints) -> Ints:
        """A changed copy of a placement (units,); an unchanged one where no unit may run on another device."""
        proposal = placement.copy()
        if len(self._movable):
            unit = int(self._movable[self._below(len(self._movable))])
            draw = self._generator.random()
            if draw < 0.25:
                proposal[unit] = self._nearby_device(placement, unit)
            else:
                device = self._other_device(placement, unit)
                if draw < 0.5:
                    around = self._neighbours[unit]
                    moved = [unit, *around[self._generator.random(len(around)) < 0.5].tolist()]
                else:
                    moved = self._region(placement, unit)
                proposal[[each for each in moved if self._allowed[each, device]]] = device
        return proposal

    def _nearby_device(self, placement: Ints, unit: int) -> int:
        around = placement[self._neighbours[unit]]
        elsewhere = around[(around != placement[unit]) & self._allowed[unit, around]]
        return int(elsewhere[self._below(len(elsewhere))]) if len(elsewhere) else self._other_device(placement, unit)

    def _region(self, placement: Ints, unit: int) -> list[int]:
        size = int(self._generator.geometric(1 / REGION))
        region, border = {unit}, [unit]
        while border and len(region) < size:
            for neighbour in self._neighbours[border.pop(self._below(len(border)))].tolist():
                if neighbour not in region and placement[neighbour] == placement[unit] and len(region) < size:
                    region.add(neighbour)
                    border.append(neighbour)
        return list(region)

    def _other_device(self, placement: Ints, unit: int) -> int:
        """Counted from the unit's own device on."""
        devices = len(self._allowed[unit])
        others = (placement[unit] + np.arange(1, devices)) % devices
        others = others[self._allowed[unit, others]]
        return int(others[self._below(len(others))])

    def _below(self, limit: int) -> int:
        return int(self._generator.random() * limit)


class PlainAnnealing:
    """A placement that changes by random moves, each simulated and then kept or not."""

    def __init__(self, evaluator: Evaluator, placement: Ints, generator: np.random.Generator, budget: int) -> None:
        """It begins with a placement, (units,), which takes one of the simulations of the budget."""
        self._evaluator, self._generator, self._budget = evaluator, generator, budget
        self._moves = PlainMoves(evaluator.problem, generator)
        self.placement, self.best, self.least_energy = placement, placement, np.inf
        self.simulations, self.in_vain = 1, 0
        self.curve: list[tuple[int, float]] = []
        self.energy = self._energy(placement)

    def run(self, hot: float, cold: float, until: int | None = None) -> None:
        """Try changes until `until` simulations are made; if `hot` is 0, those that are no worse are kept."""
        while self.simulations < (self._budget if until is None else until):
            proposal, ceiling = self._moves.propose(self.placement), self.energy
            if hot > 0:
                temperature = hot * (cold / hot) ** (self.simulations / self._budget)
                ceiling += temperature * self._generator.exponential()
            seconds = self._evaluator.seconds(proposal[None])[0]
            self.simulations += 1
            found = self._energy(proposal) if np.log(max(seconds, 1e-30)) <= ceiling else np.inf
            self.in_vain = 0 if found < self.energy else self.in_vain + 1
            if found <= ceiling:
                self.placement, self.energy = proposal, found

    def _energy(self, placement: Ints) -> float:
        outcome = self._evaluator.run_batch(placement[None]).of(0)
        ratio = np.maximum(outcome.peak_bytes, 1.0) / np.maximum(self._evaluator.problem.cluster.memory_bytes, 1.0)
        overflow = float(np.log(np.maximum(ratio, 1.0)).sum())
        found = float(np.log(max(outcome.step_seconds, 1e-30))) + (OVERFLOW * (1.0 + overflow) if overflow > 0 else 0.0)
        if found < self.least_energy:
            self.best, self.least_energy = placement, found
            if outcome.fits:
                self.curve.append((self.simulations, outcome.step_seconds))
        return found
