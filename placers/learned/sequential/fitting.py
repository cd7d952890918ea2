"""What is done where no candidate of a policy fits in memory: the nearest ones are repaired, and simulated again.

A decoder counts memory by an estimate, and where memory is tight that is wrong by more than there is room. A simulation
says how much each device needs beyond what is held all the time; with that much less memory to fill, units are moved
off overfull devices (`placers.solvers.repair`), and the next simulation says how that went:

    peak of a device    [ held ............ ][ lives for a while .... ]   over its memory
    memory                                            |
    to be repaired to   [ held ... ]                  |                   what lives for a while is taken to stay
"""

from dataclasses import replace

import numpy as np

from envs.objectives import Evaluator
from envs.prepared_problem import outcomes_of
from envs.simulation.held_memory import HeldMemory
from envs.simulation.simulator import Outcomes
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.learned.candidate import Candidate
from placers.search.levels import at_finest
from placers.solvers.repair import repaired

HELD_BACK = 2  # every second candidate is simulated once another fits; if none does, repairs take its place


def best_by_simulation(
    evaluator: Evaluator, placements: Ints, orders: Floats | None = None, coarse: Problem | None = None
) -> Candidate:
    """The best of (plans, units) placements, or of what repairs make of them if they do not fit.

    Placements are simulated under their (plans, ops) orders if they have some, and repairs by the problem's rule. No
    more are simulated than are given. Where some fit, the best is the one that it would be without repairs. The units
    of a `coarse` problem are moved together: each is on one device.
    """
    rows = np.arange(len(placements))
    later = (rows % HELD_BACK == 1) & (rows < len(rows) - 1)  # not the last: it fills least of the memory
    simulated = rows[~later]  # in the order of `tried`
    outcomes, tried = _outcomes(evaluator, placements, orders, simulated), placements[simulated]
    if later.any() and outcomes.fits.any():
        both = _joined(outcomes, _outcomes(evaluator, placements, orders, rows[later]))
        place = np.argsort(np.concatenate([simulated, rows[later]]))  # of equally fast ones the first is the best
        outcomes = Outcomes(both.step_seconds[place], both.peak_bytes[place], both.fits[place])
        simulated, tried = rows, placements
    elif later.any():
        tried, outcomes = _repairs(evaluator, tried, outcomes, int(later.sum()), coarse)
    best = outcomes.best()
    order = orders[simulated[best]] if orders is not None and best < len(simulated) else None  # repairs have none
    return Candidate(tried[best], order, outcomes.of(best))


def _outcomes(evaluator: Evaluator, placements: Ints, orders: Floats | None, rows: Ints) -> Outcomes:
    """What some placements cost, each under its order."""
    return outcomes_of(evaluator, placements[rows], None if orders is None else orders[rows])


def _repairs(
    evaluator: Evaluator, placements: Ints, outcomes: Outcomes, simulations: int, coarse: Problem | None
) -> tuple[Ints, Outcomes]:
    """The placements, (plans, units), and their repairs in at most `simulations`, beginning with the nearest."""
    problem = evaluator.problem
    tied = coarse or problem
    held = HeldMemory.of(tied)
    too_much = np.maximum(outcomes.peak_bytes - held.limits, 0.0).sum(axis=1)
    units = problem.graph.units[tied.units.first_op]  # (tied units,) one unit of each
    tried, left = list(placements), simulations
    for start in np.argsort(too_much, kind="stable").tolist():
        placement, peak, beyond = placements[start][units], outcomes.peak_bytes[start], np.zeros(len(held.limits))
        while left > 0:
            beyond = np.maximum(beyond, peak - held.on_devices(placement))
            changed = repaired(tied.units, replace(held, limits=held.limits - beyond), placement, tied.allowed)
            if np.array_equal(changed, placement):
                break  # no move of a single unit helps
            placement, left = changed, left - 1
            tried.append(placement if coarse is None else at_finest((problem, coarse), 1, placement))
            outcomes = _joined(outcomes, evaluator.run_batch(tried[-1][None]))
            peak = outcomes.peak_bytes[-1]
            if outcomes.fits[-1]:
                break
    return np.array(tried), outcomes


def _joined(one: Outcomes, other: Outcomes) -> Outcomes:
    return Outcomes(
        np.concatenate([one.step_seconds, other.step_seconds]),
        np.concatenate([one.peak_bytes, other.peak_bytes]),
        np.concatenate([one.fits, other.fits]),
    )
