"""Where a search for a running model begins: with all kept that can stay, and the same with two devices exchanged.

What a device leaves behind, or cannot do as fast any more, is often best done by another device as a whole. So what the
busiest device would do is exchanged with what each of the others does: a local search does not come there by itself.
"""

import numpy as np

from envs.costs.costs import costs_of
from envs.objectives.replacement import running_of
from envs.replacement.kept import kept_placements
from graphs.op_graph import Ints
from graphs.problem import Problem


def running_starts(problem: Problem) -> Ints:
    """(starts, units) those of a problem whose objective is to place again what runs; none of any other."""
    running = running_of(problem)
    if running is None:
        return np.zeros((0, len(problem.units)), np.int64)
    kept = kept_placements(problem, running)
    unit_seconds = problem.units.summed(costs_of(problem).op_seconds)
    devices, units = np.arange(len(problem.cluster)), np.arange(len(problem.units))
    loads = [np.bincount(each, unit_seconds[units, each], len(devices)) for each in kept]
    evenest = int(np.argmin([load.max() for load in loads]))
    placement, busiest = kept[evenest], int(loads[evenest].argmax())
    others = devices[devices != busiest][:, None]
    exchanged = np.where(placement == busiest, others, np.where(placement == others, busiest, placement))
    return np.concatenate([kept, problem.made_allowed(exchanged)])
