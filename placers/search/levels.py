"""Levels: a problem at several grains, each with ever more of its units tied, from the units to few op groups.

A search begins at the coarsest level, where a change moves much, and ends at the finest, whose units it places all the
time (multilevel refinement, Walshaw 2004). Placements of a coarser level are placements of the finest, too: groups of a
level are unions of groups of the finer ones, so starts that take long for many units are found for few.
"""

from dataclasses import replace

from graphs.op_graph import Ints
from graphs.op_groups.grouping import tie_levels
from graphs.problem import Problem

RATIO = 4  # by which a level has fewer units than the next finer one
COARSEST = 16  # units at least, unless the problem has fewer

Levels = tuple[Problem, ...]
"""The problem, and coarser ones of the same ops."""


def levels_of(problem: Problem) -> Levels:
    """The levels of a problem, the finest first: itself, if it has too few units for another."""
    counts: list[int] = []
    while (count := len(problem.units) // RATIO ** (len(counts) + 1)) >= COARSEST:
        counts.append(count)
    found = [problem]
    for graph in tie_levels(problem.graph, counts) if counts else ():
        if graph.num_units < len(found[-1].units):  # not where ops may run on too different devices to be tied
            found.append(replace(problem, graph=graph))
    return tuple(found)


def at_finest(levels: Levels, level: int, placement: Ints) -> Ints:
    """(..., units) the placement of the problem that a placement of one of its levels, (..., units there), is."""
    projected: Ints = placement[..., levels[level].graph.units[levels[0].units.first_op]]
    return projected
