"""Levels: a problem at several grains, each with ever more of its units tied, from the units to few op groups.

A search begins at the coarsest level, where a change moves much, and ends at the finest, whose units it places all the
time (multilevel refinement, Walshaw 2004). Placements of a coarser level are placements of the finest, too: groups of a
level are unions of groups of the finer ones, so starts that take long for many units are found for few. But where a
plan costs a thread time for what it sees of a model (`envs.simulation.seen_calls`), some levels have a module each.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from graphs.algorithms.components import connected_components
from graphs.op_graph import Ints
from graphs.op_groups.grouping import tie_levels
from graphs.problem import Problem
from graphs.transforms.module_calls import ModuleCalls

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
    return tuple(sorted([*found, *_of_modules(problem)], key=lambda level: -len(level.units)))


def _of_modules(problem: Problem) -> Iterator[Problem]:
    """Where calls that a plan sees take a thread longer: with what is in one module tied, the innermost first.

    A search that moved the ops of modules one by one would pay for the first before it gained by the last.
    """
    host, graph = problem.issuer, problem.graph
    if not problem.runtime.streams or host is None or host.placed == 0:
        return
    calls, ops, known = ModuleCalls.of(graph), np.arange(len(graph)), {len(problem.units)}
    if problem.allowed is not None or not (calls.of_op > 0).any():
        return
    in_units = np.column_stack([ops, problem.units.first_op[graph.units]])
    for depth in range(max(path.count(".") for path in calls.paths) + 1, 0, -1):
        first: dict[str, int] = {}
        inside = np.flatnonzero(calls.of_op > 0)
        paths = [".".join(calls.paths[each].split(".")[:depth]) for each in calls.of_op[inside].tolist()]
        to = np.array([first.setdefault(path, op) for path, op in zip(paths, inside.tolist(), strict=True)], np.int64)
        group = connected_components(np.concatenate([in_units, np.column_stack([inside, to])]), len(graph))
        tied = replace(problem, graph=replace(graph, group=group))
        if len(tied.units) not in known:
            known.add(len(tied.units))
            yield tied


def at_finest(levels: Levels, level: int, placement: Ints) -> Ints:
    """(..., units) the placement of the problem that a placement of one of its levels, (..., units there), is."""
    projected: Ints = placement[..., levels[level].graph.units[levels[0].units.first_op]]
    return projected
