"""Moves of a local search over placements: a unit after its neighbour, with its neighbours, or a whole region.

A move changes a placement in place, and says what it changed: nearly all moves are taken back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from envs.simulation.blueprint import Indices
from envs.simulation.compiled import compiled_with_generator, inlined, subroutine
from graphs.op_graph import Bools, Ints
from graphs.problem import Problem

REGION = 10  # mean of the units that a region may have


class MoveTables(NamedTuple):
    """What moves of a problem's units read, and where they write down what they changed."""

    movable: Ints  # the units that may run on several devices
    allowed: Bools  # (units, devices) where each may run
    offsets: Ints  # (units + 1,) where the neighbours of each begin
    neighbours: Ints
    changed: Ints  # (units,) the units that the latest move changed, in its first places
    before: Indices  # (units,) their devices before
    border: Ints  # (units,) scratch
    inside: Bools  # (units,) scratch, false between moves

    @classmethod
    def of(cls, problem: Problem) -> MoveTables:
        """The tables of a problem."""
        units, devices = len(problem.units), len(problem.cluster)
        allowed = np.ones((units, devices), np.bool_) if problem.allowed is None else problem.allowed
        offsets, neighbours, _ = problem.units.neighbours
        return cls(
            np.flatnonzero(allowed.sum(axis=1) > 1), np.array(allowed, order="C"), offsets, neighbours,
            np.zeros(units, np.int64), np.zeros(units, np.uint32), np.zeros(units, np.int64), np.zeros(units, np.bool_),
        )  # fmt: skip


@compiled_with_generator
def move(tables: MoveTables, placement: Indices, generator: np.random.Generator) -> int:
    """Change a placement (units,) at random; returns how many units changed: none if none may run on another device.

    Moves and their frequencies are our choice, tuned for annealing. A quarter of the moves bring a unit to the device
    of a neighbour, a quarter take about half of its neighbours along, and half take a connected region of one device
    to another. The last get out of local optima: where transfers matter, moving any single unit of a region is bad
    though moving them all is good.
    """
    if len(tables.movable) == 0:
        return 0
    unit = tables.movable[_below(len(tables.movable), generator)]
    draw = generator.random()
    tables.changed[0] = unit
    count = 1
    if draw < 0.25:
        device = _nearby_device(tables, placement, unit, generator)
    else:
        device = _other_device(tables, placement, unit, generator)
        if draw < 0.5:
            for i in range(tables.offsets[unit], tables.offsets[unit + 1]):
                if generator.random() < 0.5:
                    tables.changed[count] = tables.neighbours[i]
                    count += 1
        else:
            count = _grow_region(tables, placement, generator)
    return _bring(tables, placement, count, device)


@inlined
def take_back(tables: MoveTables, placement: Indices, count: int) -> None:
    """Undo the latest move, which changed `count` units."""
    for i in range(count):
        placement[tables.changed[i]] = tables.before[i]


@inlined
def _bring(tables: MoveTables, placement: Indices, count: int, device: int) -> int:
    """Place those of the first `count` changed units on a device that may run there; returns how many these are."""
    moved = 0
    for i in range(count):
        unit = tables.changed[i]
        if tables.allowed[unit, device]:
            tables.changed[moved] = unit
            tables.before[moved] = placement[unit]
            placement[unit] = device
            moved += 1
    return moved


@inlined
def _nearby_device(tables: MoveTables, placement: Indices, unit: int, generator: np.random.Generator) -> int:
    """The device of a neighbour that is elsewhere, or any other one if there is no such neighbour."""
    elsewhere = 0
    for i in range(tables.offsets[unit], tables.offsets[unit + 1]):
        device = placement[tables.neighbours[i]]
        if device != placement[unit] and tables.allowed[unit, device]:
            tables.border[elsewhere] = device
            elsewhere += 1
    if elsewhere == 0:
        return _other_device(tables, placement, unit, generator)
    return int(tables.border[_below(elsewhere, generator)])


@inlined
def _grow_region(tables: MoveTables, placement: Indices, generator: np.random.Generator) -> int:
    """Grow the first changed unit, at random, into connected units of its device; returns how many these are."""
    region, border, inside = tables.changed, tables.border, tables.inside
    size = generator.geometric(1 / REGION)
    inside[region[0]] = True
    border[0] = region[0]
    count = waiting = 1
    while waiting > 0 and count < size:
        at = _below(waiting, generator)
        unit = border[at]
        waiting -= 1
        for i in range(at, waiting):
            border[i] = border[i + 1]
        for i in range(tables.offsets[unit], tables.offsets[unit + 1]):
            neighbour = tables.neighbours[i]
            if not inside[neighbour] and placement[neighbour] == placement[unit] and count < size:
                inside[neighbour] = True
                region[count] = border[waiting] = neighbour
                count += 1
                waiting += 1
    for i in range(count):
        inside[region[i]] = False
    return count


@subroutine
def _other_device(tables: MoveTables, placement: Indices, unit: int, generator: np.random.Generator) -> int:
    """Any device but the unit's own where it may run."""
    devices, here = tables.allowed.shape[1], int(placement[unit])
    others = 0
    for device in range(devices):
        others += device != here and tables.allowed[unit, device]
    steps = _below(others, generator)
    device = int((here + 1) % devices)
    while steps > 0 or not tables.allowed[unit, device]:
        steps -= tables.allowed[unit, device]
        device = (device + 1) % devices
    return device


@inlined
def _below(limit: int, generator: np.random.Generator) -> int:
    """A uniform integer below a limit; several times faster than the generator's own for single draws."""
    return int(generator.random() * limit)


class Moves:
    """Moves of a problem's units, to devices where they may run, drawn from a generator."""

    def __init__(self, problem: Problem, generator: np.random.Generator) -> None:
        self.tables = MoveTables.of(problem)
        self._generator = generator

    def propose(self, placement: Ints) -> Ints:
        """A changed copy of a placement (units,); an unchanged one where no unit may run on another device."""
        proposal = placement.astype(np.uint32)
        move(self.tables, proposal, self._generator)
        return proposal.astype(np.int64)


def random_placements(problem: Problem, generator: np.random.Generator, count: int) -> Ints:
    """(count, units) placements: the device of each unit uniform over those where it may run."""
    size = (count, problem.graph.num_units)
    if problem.allowed is None:
        return generator.integers(len(problem.cluster), size=size)
    counts = problem.allowed.sum(axis=1)
    first_allowed = np.argsort(~problem.allowed, axis=1, kind="stable")  # (units, devices)
    return first_allowed[np.arange(size[1]), generator.integers(counts, size=size)]
