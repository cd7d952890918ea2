"""Improvement of labels: short searches that start at the policy, for the problems that need one (expert iteration).

Each round draws placements from the policy, searches on from the best of them, of the label so far and, the first time,
of the cheap placers, and keeps what is faster; the policy then learns that, and the next round starts from what it has
become (Anthony et al. 2017, "Thinking fast and slow"; Pirnay and Grimm 2024, "Self-improvement for neural combinatorial
optimization"). What a policy finds is near what it already does, and so easier to learn than what search finds alone.
A problem whose searches are in vain is searched ever less often.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphs.foundation.engine import Engine
from graphs.foundation.items import Threads, in_order
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.annealing import Annealing, AnnealingSearch
from placers.learned.distinct import distinct
from placers.learned.policy import A, Batch, LearnedPolicy, Policy, View
from placers.learned.settings import Imitation
from placers.search.levels import levels_of
from placers.search.starts import LEAST_TIME, SIMULATION, Starts, starts
from training.learning.labels.equal_labels import EQUAL, keep_likeliest
from training.learning.rollouts import PpoProblem

SAMPLES = 16  # of the policy that a search starts with, the greedy one among them
SAMPLES_SHARE = 0.5  # of a search's simulations that they may take
LONGEST_WAIT = 16  # times `again` at most between two searches
_ASKING = threading.Lock()


@dataclass(frozen=True, eq=False)
class LabelSearch:
    """A search for the label of a problem, which finds the same in whichever process, next to whatever others."""

    problem: Problem
    label: Ints | None  # (units,) the label so far
    samples: Ints  # (samples, units) of the policy
    simulations: int
    seed: int

    @property
    def seconds(self) -> float:
        """What it takes at least, by estimate: its simulations, or the cheap placers."""
        simulations = self.simulations if self.label is not None else max(self.simulations, LEAST_TIME)
        return simulations * SIMULATION.seconds(self.problem)

    def do(self) -> Ints:
        """(units,) the best placement that it finds.

        It begins at the best of the policy's samples, the label or, without one, the cheap placers' plans, and leaves
        the order to the problem's rule: a label is a placement, and is worth what it takes under that rule.
        """
        levels, left = levels_of(self.problem), self.simulations - len(self.samples)
        if self.label is None:
            with _ASKING:  # placers that are other people's libraries are asked one at a time
                known = starts(levels, left, self.seed)
        else:
            known = Starts(self.label[None], 0, ())
        first = Starts(distinct(np.concatenate([self.samples, known.placements])), known.spent, ())
        search = AnnealingSearch(levels, Annealing(order=False), self.seed, self.simulations, first)
        while (left := self.simulations - search.evaluations.simulations) > 0:
            search.step(0.0, left)
        return search.evaluations.best


def improve_labels(
    policy: Policy[View, Batch, A],
    problems: Sequence[PpoProblem[View]],
    settings: Imitation,
    seed: int,
    engine: Engine | None = None,
) -> int:
    """Search the labels of those problems that are due, each being met once more; returns the simulations it took.

    Without `again` only problems without a label are due, and the policy has no part in the search. The policy is
    sampled here. Searches are items for an engine, by default threads; which one changes no result.
    """
    for each in problems:
        each.schedule.met += 1
    due = [each for each in problems if _is_due(each, settings)]
    drawn = [_samples(policy, each, settings, seed) for each in due]
    searches = [
        LabelSearch(
            each.prepared.problem, each.prepared.incumbent.placement, some, settings.simulations,
            seed + each.schedule.searches,
        )
        for each, some in zip(due, drawn, strict=True)
    ]  # fmt: skip
    found = in_order(engine or Threads(), LabelSearch.do, searches)
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


def _take(
    policy: Policy[View, Batch, A], problem: PpoProblem[View], found: Sequence[Ints], settings: Imitation
) -> None:
    """Keep what is better, or as good and likelier, and decide when to search again."""
    prepared = problem.prepared
    prepared.evaluate(found[0][None])
    if settings.again:
        keep_likeliest(policy, problem, found)
    problem.schedule.searched(prepared.incumbent.value, settings.again, LONGEST_WAIT * settings.again, EQUAL)
