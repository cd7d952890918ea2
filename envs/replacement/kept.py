"""Keep all that can stay: what a running model's placement becomes with the least change."""

import numpy as np

from envs.replacement.evaluator import ReplacementEvaluator
from envs.replacement.running import LEFT, Running
from graphs.op_graph import Ints
from graphs.problem import Problem


def kept_placements(problem: Problem, running: Running) -> Ints:
    """(placements, units) in which every unit stays where it may; what has no device any more is together on another.

    There is one for each device if some units have none. A unit that may not run where it is, or goes, is moved to
    where it may (`Problem.made_allowed`).
    """
    lost = running.placement == LEFT
    devices = np.arange(len(problem.cluster) if lost.any() else 1)
    return problem.made_allowed(np.where(lost, devices[:, None], running.placement))


def kept(evaluator: ReplacementEvaluator) -> Ints:
    """(units,) of these placements the best."""
    placements = kept_placements(evaluator.problem, evaluator.running)
    best: Ints = placements[evaluator.run_batch(placements).best()]
    return best
