"""Moves of a local search over placements: a unit after its neighbour, with its neighbours, or a whole region."""

from __future__ import annotations

import numpy as np

from graphs.op_graph import Ints
from graphs.problem import Problem

REGION = 10  # mean of the units that a region may have


class Moves:
    """Small random changes of a placement; moves and their frequencies are our choice, tuned for annealing.

    A quarter of the moves bring a unit to the device of a neighbour, a quarter take about half of its neighbours along,
    and half take a connected region of one device to another. The last get out of local optima: where transfers matter,
    moving any single unit of a region is bad though moving them all is good.
    """

    def __init__(self, problem: Problem, generator: np.random.Generator) -> None:
        """Moves of a problem's units, drawn from the generator, to devices where they may run."""
        self._generator = generator
        self._devices = len(problem.cluster)
        self._allowed = allowed = problem.allowed
        self._movable = np.arange(len(problem.units)) if allowed is None else np.flatnonzero(allowed.sum(axis=1) > 1)
        offsets, neighbours, _ = problem.units.neighbours
        self._neighbours = np.split(neighbours, offsets[1:-1])

    def propose(self, placement: Ints) -> Ints:
        """A changed copy of a placement (units,); an unchanged one where no unit may run on another device."""
        proposal = placement.copy()
        if self._devices > 1 and len(self._movable):
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
                if self._allowed is not None:
                    moved = [each for each in moved if self._allowed[each, device]]
                proposal[moved] = device
        return proposal

    def _nearby_device(self, placement: Ints, unit: int) -> int:
        """The device of a neighbour that is elsewhere, or any other one if there is no such neighbour."""
        around = placement[self._neighbours[unit]]
        elsewhere = around[around != placement[unit]]
        if self._allowed is not None:
            elsewhere = elsewhere[self._allowed[unit, elsewhere]]
        return int(elsewhere[self._below(len(elsewhere))]) if len(elsewhere) else self._other_device(placement, unit)

    def _region(self, placement: Ints, unit: int) -> list[int]:
        """Connected units of one device, grown at random from one of them."""
        size = int(self._generator.geometric(1 / REGION))
        region, border = {unit}, [unit]
        while border and len(region) < size:
            for neighbour in self._neighbours[border.pop(self._below(len(border)))].tolist():
                if neighbour not in region and placement[neighbour] == placement[unit] and len(region) < size:
                    region.add(neighbour)
                    border.append(neighbour)
        return list(region)

    def _other_device(self, placement: Ints, unit: int) -> int:
        if self._allowed is None:
            return int((placement[unit] + 1 + self._below(self._devices - 1)) % self._devices)
        others = np.flatnonzero(self._allowed[unit])
        others = others[others != placement[unit]]
        return int(others[self._below(len(others))])

    def _below(self, limit: int) -> int:
        """A uniform integer below a limit; several times faster than the generator's own for single draws."""
        return int(self._generator.random() * limit)


def random_placements(problem: Problem, generator: np.random.Generator, count: int) -> Ints:
    """(count, units) placements: the device of each unit uniform over those where it may run."""
    size = (count, problem.graph.num_units)
    if problem.allowed is None:
        return generator.integers(len(problem.cluster), size=size)
    counts = problem.allowed.sum(axis=1)
    first_allowed = np.argsort(~problem.allowed, axis=1, kind="stable")  # (units, devices)
    return first_allowed[np.arange(size[1]), generator.integers(counts, size=size)]
