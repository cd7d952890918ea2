"""A plan that fits in memory, near one that does not: hill climbing until the first that fits.

What a device holds at its peak depends on the order in which ops run as much as on where they are, so no sum of sizes
says whether a plan fits. A simulation does, and takes some microseconds in compiled code. The energy of a search has
overflow in it (`placers.search.evaluations.overflow`), so single moves, of units and of the order, go down to where
nothing overflows. Some plans are at a dead end: after many changes in vain it begins again with a random placement.
"""

from __future__ import annotations

import math
import time

import numpy as np

from envs.orders import priorities_of
from graphs.op_graph import Ints
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from placers.search.evaluations import Evaluations
from placers.search.local_search import LocalSearch
from placers.search.metropolis import CoolingSchedule

MOST = 4096  # simulations
SHARE = 0.75  # of a search's simulations that look for a first plan that fits
SECONDS_SHARE = 0.5  # of its seconds: its starts have had theirs
PATIENCE = 200  # changes in vain after which it begins elsewhere, at most
OF_UNIT = 8  # the same, times units
REORDER = 0.2  # the share of changes that are of the order


def first_fit(
    problem: Problem, placement: Ints, simulations: int, *, seed: int = 0, seconds: float = math.inf,
    reorder: bool = True,
) -> Evaluations:  # fmt: skip
    """At most so many evaluations from a placement, (units,), on: they have a curve if one of them fits.

    They end with the call of compiled code that finds the first that fits, or after some processor seconds. With
    `reorder` plans may have orders of their own; PyTorch's, which keeps less at a time, is the first to be tried.
    """
    until = time.process_time() + seconds
    evaluations = Evaluations(problem, placement)
    if simulations > 0:
        evaluations.energies(placement[None])
    if reorder and len(evaluations.rule) and problem.runtime.frees_order and simulations > 1 and not evaluations.curve:
        evaluations.energies(placement[None], priorities_of(problem, PROGRAM)[None])
    search = LocalSearch(problem, np.random.default_rng(seed), evaluations)
    patience = min(PATIENCE, OF_UNIT * len(problem.units))
    schedule = CoolingSchedule(patience=patience, reorder=REORDER if reorder else 0.0)
    order = search.priorities
    while not evaluations.curve and evaluations.simulations < simulations and time.process_time() < until:
        if search.in_vain < patience:
            search.take_steps(schedule, simulations - evaluations.simulations)
        else:
            search.begin_again(order)
    return evaluations


def begin_where_it_fits(
    evaluations: Evaluations, problem: Problem, budget: int, seed: int, *, reorder: bool, seconds: float = math.inf
) -> None:
    """Where nothing that a search has evaluated fits, evaluate the first plan near its best that does.

    Looking for it takes a share of the budget, and of the search's processor seconds.
    """
    simulations = min(int(SHARE * (budget - evaluations.simulations)) - 1, MOST)
    if evaluations.curve or evaluations.simulations == 0 or simulations < 1:
        return
    found = first_fit(
        problem, evaluations.best, simulations, seed=seed, seconds=SECONDS_SHARE * seconds, reorder=reorder
    )
    evaluations.simulations += found.simulations
    evaluations.energies(found.best[None], None if found.order is None else found.order[None])
