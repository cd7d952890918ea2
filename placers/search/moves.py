"""Moves of a local search over placements: a node after its neighbour, with its neighbours, or a whole region.

A node is a unit, or at a coarser level a group of units: a search that moves groups first and units last sees the whole
graph while changes are large (multilevel refinement, Walshaw 2004), though its placement is of units all the time.
A move changes a placement in place, and says what it changed: nearly all moves are taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from envs.simulation.blueprint import Indices
from envs.simulation.compiled import compiled_with_generator, inlined, subroutine
from graphs.algorithms.order import compressed_rows
from graphs.op_graph import Bools, Ints
from graphs.problem import Problem
from placers.search.critical_units import SHARE, CriticalUnits

REGION = 10  # mean of the nodes that a region may have


class MoveTables(NamedTuple):
    """What moves of a problem's units read, and where they write down what they changed.

    Nodes are numbered level by level; those of the finest level are the units.
    """

    movable: Ints  # the nodes with a unit that may run on several devices
    movable_start: Ints  # (levels + 1,) where those of each level begin
    members: Ints  # (levels x units,) the units of each node
    member_start: Ints  # (nodes + 1,) where those of each node begin
    offsets: Ints  # (nodes + 1,) where the neighbours of each begin
    neighbours: Ints  # nodes of the same level
    allowed: Bools  # (units, devices) where each may run
    changed: Ints  # (units,) the units that the latest move changed, in its first places
    before: Indices  # (units,) their devices before
    chosen: Ints  # (units,) scratch: the nodes of a move
    border: Ints  # (units,) scratch
    inside: Bools  # (nodes,) scratch, false between moves
    node: Ints  # (levels, units) the node of each unit
    critical: CriticalUnits  # at which most moves begin, if there are any

    @classmethod
    def of(cls, problem: Problem, coarser: Sequence[Problem] = ()) -> MoveTables:
        """The tables of a problem; `coarser` are the same with ever more of its units tied."""
        units, devices = len(problem.units), len(problem.cluster)
        allowed = np.ones((units, devices), np.bool_) if problem.allowed is None else problem.allowed
        parts: list[tuple[Ints, ...]] = []  # of each level
        node_of: list[Ints] = []
        nodes = 0
        for level in (problem, *coarser):
            node = level.graph.units[problem.units.first_op]  # (units,) of each unit
            movable = np.unique(node[allowed.sum(axis=1) > 1])
            member_start, members = compressed_rows(node, np.arange(units), len(level.units))
            offsets, neighbours, _ = level.units.neighbours
            counts = np.array([len(movable)]), np.diff(member_start), np.diff(offsets)
            node_of.append(nodes + node)
            parts.append((nodes + movable, members, nodes + neighbours, *counts))
            nodes += len(level.units)
        movable, members, neighbours, *counted = (np.concatenate(each) for each in zip(*parts, strict=True))
        movable_start, member_start, offsets = (np.concatenate([[0], counts]).cumsum() for counts in counted)
        return cls(
            movable, movable_start, members, member_start, offsets, neighbours, np.array(allowed, order="C"),
            np.zeros(units, np.int64), np.zeros(units, np.uint32),
            np.zeros(units, np.int64), np.zeros(units, np.int64), np.zeros(nodes, np.bool_),
            np.stack(node_of), CriticalUnits.none(units),
        )  # fmt: skip


@inlined
def level_at(tables: MoveTables, progress: float) -> int:
    """The level of moves when a share `progress` of a search is over: each has its time, the coarsest first."""
    levels = len(tables.movable_start) - 1
    return levels - 1 - min(int(progress * levels), levels - 1)


@compiled_with_generator
def move(tables: MoveTables, placement: Indices, level: int, generator: np.random.Generator) -> int:
    """Change a placement (units,) at random; returns how many units changed: none if none may run on another device.

    Moves and their frequencies are our choice, tuned for annealing. A quarter of the moves bring a node of the level to
    the device of a neighbour, a quarter take about half of its neighbours along, and half take a connected region of
    one device to another. The last get out of local optima: where transfers matter, moving any single node of a region
    is bad though moving them all is good. Of a node on several devices, what is on one of them is moved. Most moves
    begin at critical units, if some are known.
    """
    first, nodes = tables.movable_start[level], tables.movable_start[level + 1] - tables.movable_start[level]
    if nodes == 0:
        return 0
    node = tables.movable[first + below(nodes, generator)]
    members = tables.member_start[node + 1] - tables.member_start[node]
    unit = tables.members[tables.member_start[node] + (0 if members == 1 else below(members, generator))]
    if tables.critical.number[0] > 0 and generator.random() < SHARE:
        unit = tables.critical.units[below(tables.critical.number[0], generator)]
        node = tables.node[level, unit]
    here = placement[unit]
    draw = generator.random()
    tables.chosen[0] = node
    count = 1
    anywhere = False
    if draw < 0.25:
        device = _nearby_device(tables, placement, node, unit, generator)
    else:
        device = _other_device(tables, placement, unit, generator)
        if draw < 0.5:
            anywhere = True
            for i in range(tables.offsets[node], tables.offsets[node + 1]):
                if generator.random() < 0.5:
                    tables.chosen[count] = tables.neighbours[i]
                    count += 1
        else:
            count = _grow_region(tables, placement, here, generator)
    return _bring(tables, placement, count, here, anywhere, device)


@inlined
def take_back(tables: MoveTables, placement: Indices, count: int) -> None:
    """Undo the latest move, which changed `count` units."""
    for i in range(count):
        placement[tables.changed[i]] = tables.before[i]


@inlined
def _device_of(tables: MoveTables, placement: Indices, node: int) -> int:
    """The device of a node: of its first unit, if it is on several."""
    return int(placement[tables.members[tables.member_start[node]]])


@inlined
def _bring(tables: MoveTables, placement: Indices, count: int, here: int, anywhere: bool, device: int) -> int:
    """Place those units of the first `count` chosen nodes on a device that are here, or anywhere, and may run there.

    Returns how many these are.
    """
    moved = 0
    for i in range(count):
        node = tables.chosen[i]
        for position in range(tables.member_start[node], tables.member_start[node + 1]):
            unit = tables.members[position]
            if tables.allowed[unit, device] and (anywhere or placement[unit] == here):
                tables.changed[moved] = unit
                tables.before[moved] = placement[unit]
                placement[unit] = device
                moved += 1
    return moved


@inlined
def _nearby_device(tables: MoveTables, placement: Indices, node: int, unit: int, generator: np.random.Generator) -> int:
    """The device of a neighbour of a node that is elsewhere than a unit of it, or any other one if there is none."""
    elsewhere = 0
    for i in range(tables.offsets[node], tables.offsets[node + 1]):
        device = _device_of(tables, placement, tables.neighbours[i])
        if device != placement[unit] and tables.allowed[unit, device]:
            tables.border[elsewhere] = device
            elsewhere += 1
    if elsewhere == 0:
        return _other_device(tables, placement, unit, generator)
    return int(tables.border[below(elsewhere, generator)])


@inlined
def _grow_region(tables: MoveTables, placement: Indices, here: int, generator: np.random.Generator) -> int:
    """Grow the first chosen node, at random, into connected nodes of the device `here`; returns how many these are."""
    region, border, inside = tables.chosen, tables.border, tables.inside
    size = generator.geometric(1 / REGION)
    inside[region[0]] = True
    border[0] = region[0]
    count = waiting = 1
    while waiting > 0 and count < size:
        at = below(waiting, generator)
        node = border[at]
        waiting -= 1
        for i in range(at, waiting):
            border[i] = border[i + 1]
        for i in range(tables.offsets[node], tables.offsets[node + 1]):
            neighbour = tables.neighbours[i]
            if not inside[neighbour] and _device_of(tables, placement, neighbour) == here and count < size:
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
    steps = below(others, generator)
    device = int((here + 1) % devices)
    while steps > 0 or not tables.allowed[unit, device]:
        steps -= tables.allowed[unit, device]
        device = (device + 1) % devices
    return device


@inlined
def below(limit: int, generator: np.random.Generator) -> int:
    """A uniform integer below a limit; several times faster than the generator's own for single draws."""
    return int(generator.random() * limit)


class Proposals(Protocol):
    """What a local search tries next."""

    def propose(self, placement: Ints, progress: float = 1.0) -> Ints:
        """A changed copy of a placement, (units,), when a share `progress` of the search is over."""
        ...


class Moves:
    """Moves of a problem's units, to devices where they may run, drawn from a generator."""

    def __init__(self, problem: Problem, generator: np.random.Generator, coarser: Sequence[Problem] = ()) -> None:
        self.tables = MoveTables.of(problem, coarser)
        self._generator = generator

    def propose(self, placement: Ints, progress: float = 1.0) -> Ints:
        """A changed copy of a placement (units,); an unchanged one where no unit may run on another device.

        It is at the level of moves when a share `progress` of a search is over.
        """
        proposal = placement.astype(np.uint32)
        move(self.tables, proposal, level_at(self.tables, progress), self._generator)
        return proposal.astype(np.int64)


def random_placements(problem: Problem, generator: np.random.Generator, count: int) -> Ints:
    """(count, units) placements: the device of each unit uniform over those where it may run."""
    size = (count, problem.graph.num_units)
    if problem.allowed is None:
        return generator.integers(len(problem.cluster), size=size)
    counts = problem.allowed.sum(axis=1)
    first_allowed = np.argsort(~problem.allowed, axis=1, kind="stable")  # (units, devices)
    return first_allowed[np.arange(size[1]), generator.integers(counts, size=size)]
