"""What is done where no candidate of a policy fits in memory: the nearest one is changed until it does.

A decoder counts memory by an estimate, and where memory is tight that is wrong by more than there is room. A simulation
says what each device needs at its fullest moment, and moves of single units lower that (`placers.search.first_fit`).
"""

from __future__ import annotations

import math

import numpy as np

from envs.objectives import Evaluator
from envs.prepared_problem import outcomes_of
from envs.simulation.simulator import Outcomes
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.learned.candidate import Candidate
from placers.search.evaluations import rule_of
from placers.search.first_fit import MOST, first_fit
from placers.search.levels import at_finest

HELD_BACK = 2  # every second candidate is simulated once another fits; if none does, those left change the nearest


def best_by_simulation(evaluator: Evaluator, placements: Ints, orders: Floats | None = None) -> Candidate:
    """The best of (plans, units) placements, under their (plans, ops) orders if they have some.

    Where none of the first half fits in memory, that is the nearest to fitting, and the others are not simulated.
    """
    rows = np.arange(len(placements))
    later = (rows % HELD_BACK == 1) & (rows < len(rows) - 1)  # not the last: it fills least of the memory
    simulated = rows[~later]
    outcomes = _outcomes(evaluator, placements, orders, simulated)
    if later.any() and outcomes.fits.any():
        both = _joined(outcomes, _outcomes(evaluator, placements, orders, rows[later]))
        place = np.argsort(np.concatenate([simulated, rows[later]]))  # of equally fast ones the first is the best
        outcomes = Outcomes(both.step_seconds[place], both.peak_bytes[place], both.fits[place])
        simulated = rows
    best = outcomes.best()
    row = int(simulated[best])
    return Candidate(placements[row], None if orders is None else orders[row], outcomes.of(best))


def made_to_fit(
    evaluator: Evaluator, candidate: Candidate, simulations: int, coarse: Problem | None = None,
    seconds: float = math.inf,
) -> Candidate:  # fmt: skip
    """A candidate that does not fit, or what at most so many simulations and processor seconds make of it.

    The units of a `coarse` problem are moved together: each is on one device. A plan that fits has an order of its own.
    """
    problem = evaluator.problem
    tied = coarse or problem
    units = problem.graph.units[tied.units.first_op]  # (tied units,) one unit of each
    reorder = len(rule_of(evaluator)) > 0
    most = min(simulations, MOST) - 1  # the last is of the result
    found = first_fit(tied, candidate.placement[units], most, seconds=seconds, reorder=reorder)
    evaluator.simulations += found.simulations
    if not found.curve:
        return candidate
    placement = found.best if coarse is None else at_finest((problem, coarse), 1, found.best)
    return Candidate.best_of(evaluator, placement[None], None if found.order is None else found.order[None])


def _outcomes(evaluator: Evaluator, placements: Ints, orders: Floats | None, rows: Ints) -> Outcomes:
    """What some placements cost, each under its order."""
    return outcomes_of(evaluator, placements[rows], None if orders is None else orders[rows])


def _joined(one: Outcomes, other: Outcomes) -> Outcomes:
    return Outcomes(
        np.concatenate([one.step_seconds, other.step_seconds]),
        np.concatenate([one.peak_bytes, other.peak_bytes]),
        np.concatenate([one.fits, other.fits]),
    )
