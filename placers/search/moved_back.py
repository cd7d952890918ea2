"""Moving back: at the end of a search for a running model, what it moved and gains nothing by stays where it runs.

The objective counts the seconds of the busiest channel alone, and a search keeps changes that neither help nor hurt. So
of its best plan the units that read one weight on one device, where it is not held yet, are put back to where they run,
those of most bytes first; that stays if fewer bytes move and the objective is no worse.
"""

from __future__ import annotations

import time

import numpy as np

from envs.objectives.replacement import running_of
from envs.replacement.evaluator import ReplacementEvaluator
from envs.replacement.running import LEFT
from envs.simulation.moved_weights import MovedWeights
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.search.evaluations import Evaluations
from placers.search.starts import SIMULATION

SHARE = 0.08  # of the simulations and the seconds of a search, at most, that are left to it
PER_UNIT = 2  # simulations, likewise
CALL_SECONDS = 1e-4  # of a simulation that is called from Python, beside its own


def left_to_move_back(problem: Problem, budget: int, seconds: float) -> tuple[int, float]:
    """How many simulations and seconds of a search are left to it; none where no model runs."""
    if running_of(problem) is None:
        return 0, 0.0
    most = PER_UNIT * len(problem.units)
    return min(int(SHARE * budget), most), min(SHARE * seconds, most * (SIMULATION.seconds(problem) + CALL_SECONDS))


def move_back(evaluations: Evaluations, problem: Problem, budget: int, until: float) -> None:
    """Change the best placement of a search so, by `budget` simulations and `until` so many seconds of the process."""
    running, evaluator, best = running_of(problem), evaluations.evaluator, evaluations.incumbent
    if running is None or not isinstance(evaluator, ReplacementEvaluator) or not np.isfinite(best.value):
        return
    runs = problem.made_allowed(np.where(running.placement == LEFT, evaluations.best, running.placement))
    orders = None if best.priorities is None else best.priorities[None]
    least, before = _bytes(evaluator, evaluations.best), np.inf
    while least < before:
        before = least
        for units in _moved(evaluator.moved, evaluations.best, runs):
            if evaluations.simulations >= budget or time.process_time() >= until:
                return
            back, energy = evaluations.best.copy(), best.value
            back[units] = runs[units]
            moved = _bytes(evaluator, back)
            if moved < least and float(evaluations.energies(back[None], orders)[0]) <= energy:
                best.placement, least = back, moved


def _bytes(evaluator: ReplacementEvaluator, placement: Ints) -> float:
    """What (units,) a placement moves."""
    return float(evaluator.moves(placement[None])[1][0])


def _moved(moved: MovedWeights, placement: Ints, runs: Ints) -> list[Ints]:
    """The units that read one weight on one device to which it is moved, but for those that run there.

    Those of most bytes come first. `placement` is (units,), and `runs`, (units,), where each runs.
    """
    device = placement[moved.unit]
    size = moved.bytes[moved.weight, device]
    uses = np.flatnonzero((size > 0) & (device != runs[moved.unit]))
    place = moved.weight[uses] * moved.bytes.shape[1] + device[uses]
    order = np.lexsort((place, -size[uses]))
    ends = np.flatnonzero(np.diff(place[order])) + 1
    return np.split(moved.unit[uses[order]], ends)
