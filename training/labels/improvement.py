"""Improvement of labels: short searches that start at the policy, for the problems that need one (expert iteration).

Each round draws placements from the policy, searches on from the best of them, of the label so far and, the first time,
of the cheap placers, and keeps what is faster; the policy then learns that, and the next round starts from what it has
become (Anthony et al. 2017, "Thinking fast and slow"; Pirnay and Grimm 2024, "Self-improvement for neural combinatorial
optimization"). What a policy finds is near what it already does, and so easier to learn than what search finds alone.
A problem whose searches are in vain is searched ever less often.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from graphs.op_graph import Ints
from placers.annealing import Annealing, AnnealingSearch
from placers.learned.distinct import distinct
from placers.learned.policy import A, Batch, LearnedPolicy, Policy, View
from placers.learned.settings import Imitation
from placers.search.levels import levels_of
from placers.search.starts import Starts, starts
from training.labels.equal_labels import EQUAL, keep_likeliest
from training.rollouts import PpoProblem

SAMPLES = 16  # of the policy that a search starts with, the greedy one among them
SAMPLES_SHARE = 0.5  # of a search's simulations that they may take
LONGEST_WAIT = 16  # times `again` at most between two searches


def improve_labels(
    policy: Policy[View, Batch, A], problems: Sequence[PpoProblem[View]], settings: Imitation, seed: int
) -> int:
    """Search the labels of those problems that are due, each being met once more; returns the simulations it took.

    Without `again` only problems without a label are due, and the policy has no part in the search. What samples the
    policy and what asks the cheap placers holds the interpreter's lock; the searches, which are compiled, run side by
    side, and the number of threads changes no result.
    """
    for each in problems:
        each.schedule.met += 1
    due = [each for each in problems if _is_due(each, settings)]
    drawn = [_samples(policy, each, settings, seed) for each in due]
    searches = [
        _search(each, some, settings.simulations, seed + each.schedule.searches)
        for each, some in zip(due, drawn, strict=True)
    ]
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(_finish, searches, [settings.simulations] * len(searches)))
    for each, placement, samples in zip(due, found, drawn, strict=True):
        _take(policy, each, [placement, *samples], settings)
    return settings.simulations * len(due)


def _is_due(problem: PpoProblem[View], settings: Imitation) -> bool:
    return problem.schedule.is_due() if settings.again else problem.prepared.incumbent.placement is None


def _samples(policy: LearnedPolicy, problem: PpoProblem[View], settings: Imitation, seed: int) -> Ints:
    """(samples, units) distinct placements of the policy, the greedy one first; none if it has no part."""
    of, count = problem.prepared.problem, min(SAMPLES, int(SAMPLES_SHARE * settings.simulations))
    if not settings.again or not count:
        return np.zeros((0, len(of.units)), np.int64)
    return distinct(of.made_allowed(policy.candidates(of, count, seed + problem.schedule.searches)))


def _search(problem: PpoProblem[View], samples: Ints, simulations: int, seed: int) -> AnnealingSearch:
    """A search at the best of the policy's samples, the label or, without one, the cheap placers' plans.

    It leaves the order to the problem's rule: a label is a placement, and is worth what it takes under that rule.
    """
    levels, settings = levels_of(problem.prepared.problem), Annealing(order=False)
    label, left = problem.prepared.incumbent.placement, simulations - len(samples)
    known = starts(levels, left, seed) if label is None else Starts(label[None], 0, ())
    first = distinct(np.concatenate([samples, known.placements]))
    return AnnealingSearch(levels, settings, seed, simulations, Starts(first, known.spent, ()))


def _finish(search: AnnealingSearch, simulations: int) -> Ints:
    """(units,) the best placement that a search finds."""
    while (left := simulations - search.evaluations.simulations) > 0:
        search.step(0.0, left)
    return search.evaluations.best


def _take(
    policy: Policy[View, Batch, A], problem: PpoProblem[View], found: Sequence[Ints], settings: Imitation
) -> None:
    """Keep what is better, or as good and likelier, and decide when to search again."""
    prepared = problem.prepared
    prepared.evaluate(found[0][None])
    if settings.again:
        keep_likeliest(policy, problem, found)
    problem.schedule.searched(prepared.incumbent.value, settings.again, LONGEST_WAIT * settings.again, EQUAL)
