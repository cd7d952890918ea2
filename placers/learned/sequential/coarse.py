"""Large problems by levels: a policy places few groups of units first, and then places ever smaller ones again.

A policy that was trained on tens to hundreds of units, and places thousands one after another, misses what only shows
from afar. So the units of a large problem are tied into few groups, which it places; then it makes a pass over four
times as many groups, with that placement as the pass before, and so on (multilevel refinement, Walshaw 2004):

    groups     32 --> 128 --> 512 --> 1024 at most, and units are where their group is
    passes      2       1       1       1

All of it takes no simulation. The numbers are chosen by problems of neither training nor test (`docs/results.md`).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from graphs.op_graph import Ints
from graphs.op_groups.grouping import tie_levels
from graphs.problem import Problem
from placers.learned.sequential.policy import SequentialPolicy
from placers.search.levels import RATIO, Levels, at_finest

GROUPS = 32  # of units, in which large problems are placed first
ONE_LEVEL = 128  # units that are placed without coarser levels
MOST_UNITS = 1024  # of the finest level: finer passes gain as little as they take long
AT_ONCE = 4  # one candidate in four is placed without coarser levels, too: what is best differs by problem


def placed_in_groups(problem: Problem, candidates: Callable[[Problem], Ints]) -> Ints:
    """(count, units) what `candidates` makes of a problem, or of its units in `MOST_UNITS` groups."""
    if len(problem.units) <= MOST_UNITS:
        return candidates(problem)
    coarse = in_groups(problem)
    return at_finest((problem, coarse), 1, candidates(coarse))


@lru_cache(maxsize=1)  # placements, their orders and their repairs are of the same groups, one after another
def in_groups(problem: Problem) -> Problem:
    """The problem with its units in `MOST_UNITS` groups."""
    return replace(problem, graph=tie_levels(problem.graph, [MOST_UNITS])[0])


def grains(problem: Problem, groups: int) -> Levels:
    """The problem, then coarser ones down to `groups` units, the finest first; a small problem has no coarser ones."""
    if not groups or len(problem.units) <= max(ONE_LEVEL, groups):
        return (problem,)
    counts = [groups]
    while counts[-1] * RATIO * 2 <= len(problem.units):  # a level with nearly all of the units adds nothing
        counts.append(counts[-1] * RATIO)
    return problem, *(replace(problem, graph=graph) for graph in tie_levels(problem.graph, counts))


def candidates_by_levels(policy: SequentialPolicy, levels: Levels, count: int, seed: int) -> Ints:
    """(count, units) a policy's candidates for the finest of some levels, the most likely one first."""
    at_once = count // AT_ONCE if len(levels) > 1 else 0
    found = _refined(policy, levels, policy.candidates(levels[-1], count - at_once, seed), seed)
    return np.concatenate([found, policy.candidates(levels[0], at_once, seed)]) if at_once else found


def _refined(policy: SequentialPolicy, levels: Levels, placements: Ints, seed: int) -> Ints:
    """(count, units) placements of the finest of some levels, from those of the coarsest, (count, units there).

    What is all on one device at a level stays so: there is nothing to be placed more finely.
    """
    for level in reversed(range(len(levels) - 1)):
        placements = at_finest(levels[level : level + 2], 1, placements)
        spread = np.flatnonzero((placements != placements[:, :1]).any(axis=1))
        if len(spread):
            batch = policy.stack([policy.view(levels[level])])
            placements[spread] = policy.drawn(batch, len(spread), seed, before=placements[spread])
    return placements
