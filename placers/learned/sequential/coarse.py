"""Large problems in groups of units: a policy places them at the grain that it was trained at.

A policy that was trained on tens to hundreds of units spreads chains of thousands over all devices. So the units of a
large problem are tied into few groups, as the coarsest level of a search is (`placers.search.levels`), and units are
where their group is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from graphs.grouping import tie_levels
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.search.levels import at_finest

MOST_UNITS = 1024  # that are placed one by one: of more, greedy plans are worse than those of partitioners


def placed_in_groups(problem: Problem, groups: int, candidates: Callable[[Problem], Ints]) -> Ints:
    """(count, units) what `candidates` makes of a problem: of a large one in so many groups, or unit by unit."""
    if not groups or len(problem.units) <= max(MOST_UNITS, groups):
        return candidates(problem)
    coarse = replace(problem, graph=tie_levels(problem.graph, [groups])[0])
    return at_finest((problem, coarse), 1, candidates(coarse))
