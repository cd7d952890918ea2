"""Problems whose memory binds: hardly more than the least peak that a search finds for their fullest device."""

from __future__ import annotations

from dataclasses import replace

from envs.simulation.simulator import Simulator, simulate
from graphs.problem import Problem
from placers.annealing import Annealing
from training.problems.random.random_memory import saving_plan

CUTS = 0.8, 0.9, 0.95, 0.98  # shares of the least peak so far: the memory of the next search, until none finds a plan
SIMULATIONS = 1000  # of each search


def least_peak(problem: Problem) -> float:
    """Bytes that the fullest device needs with the plan that needs least, of those that annealing finds.

    It searches plans in ever less memory; an overflow of memory costs it more than any step time.
    """
    unlimited = with_memory_of(problem, float("inf"))
    least = float(Simulator(unlimited).run(saving_plan(unlimited)).peak_bytes.max())
    for cut in CUTS:
        fits = least > 0
        while fits:
            tighter = with_memory_of(problem, cut * least)
            found = simulate(tighter, Annealing().place(tighter, budget=SIMULATIONS).plan)
            least = min(least, float(found.peak_bytes.max()))
            fits = found.fits and least > 0
    return least


def with_memory_of(problem: Problem, memory_bytes: float) -> Problem:
    """The problem, each of whose devices has this memory."""
    return replace(problem, cluster=problem.cluster.with_each_device(memory_bytes=memory_bytes))
