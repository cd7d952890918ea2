"""Training to repair: a policy meets plans of which some units are freed, and is paid for what it gains over them.

A policy that only ever builds plans knows where to begin, and not what to mend. So a share of the problems of an update
are met with a plan: the best one that is known, or that with a few random changes, so that there is something to gain
even where the best known is hard to beat. What samples are paid is `training.learning.advantage.gains_over`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from envs.prepared_problem import outcomes_of
from graphs.op_graph import Floats, Ints
from placers.contract.current_plan import CurrentPlan
from placers.search.moves import Moves
from training.learning.rollouts import PpoProblem

DISTURBED = 0.5  # of the plans, by random changes
MOST_CHANGES = 16  # moves of annealing that disturb a plan


def plans_to_repair(
    problems: Sequence[PpoProblem[Any]], share: float, generator: np.random.Generator
) -> list[CurrentPlan | None]:
    """Of a share of the problems, drawn at random, a plan of each for which one is known that fits; None of others."""
    return [_plan(problem, generator) if generator.random() < share else None for problem in problems]


def _plan(problem: PpoProblem[Any], generator: np.random.Generator) -> CurrentPlan | None:
    best = problem.prepared.incumbent
    if best.placement is None:
        return None
    if generator.random() < DISTURBED:
        placement, moves = best.placement, Moves(problem.prepared.problem, generator)
        for _ in range(int(generator.integers(1, MOST_CHANGES + 1))):
            placement = moves.propose(placement)
        plan = _read(problem, placement, best.priorities)
        if plan.fits:  # the seconds of one that does not say nothing of what there is to gain
            return plan
    return _read(problem, best.placement, best.priorities)


def _read(problem: PpoProblem[Any], placement: Ints, priorities: Floats | None) -> CurrentPlan:
    """A placement and its order; its seconds are what samples are compared with, those of the problem's objective."""
    order = None if priorities is None else priorities[None]
    outcome = outcomes_of(problem.prepared.evaluator, placement[None], order).of(0)
    plan = problem.reader.read(placement, priorities)
    return replace(plan, step_seconds=outcome.step_seconds, fits=outcome.fits)
