"""Equal labels: of placements that are equally fast, the one that the policy finds likeliest is its label.

Where devices can change places, a plan has many names. A policy that is shown one today and another tomorrow learns
neither, and what it gives to one is missing from the others. Decoders rename single devices by themselves; here whole
sets of equal devices change places, such as two servers alike:

    server A = 0, 1; server B = 2, 3           units on 0 0 1 2  are as fast as  2 2 3 0
"""

from collections.abc import Iterable
from itertools import combinations

import numpy as np

from envs.costs.costs import costs_of
from envs.prepared_problem import PreparedProblem
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.distinct import distinct
from placers.learned.equal_devices import interchangeable, is_symmetry
from placers.learned.policy import A, Batch, Policy, View
from training.learning.labels.forced_decoding import likelihoods
from training.learning.rollouts import PpoProblem

EQUAL = 1e-9  # of the seconds: below this is the order in which floats were added
MOST = 8  # placements that are rated to choose one label


def renamings(problem: Problem, placement: Ints) -> Ints:
    """(renamings, units) the placement, (units,), where two sets of equal devices change places."""
    cluster, allowed = problem.cluster, problem.allowed
    seconds = costs_of(problem).busy_seconds(problem)
    same = interchangeable(cluster, seconds)
    found = []
    for one, other in combinations([np.flatnonzero(same == first) for first in np.unique(same)], 2):
        if len(one) != len(other):
            continue
        turned = np.arange(len(cluster))
        turned[one], turned[other] = other, one
        if is_symmetry(cluster, seconds, turned) and (allowed is None or (allowed == allowed[:, turned]).all()):
            found.append(turned[placement])
    return distinct(np.reshape(np.array(found, np.int64), (-1, len(placement))))


def keep_likeliest(policy: Policy[View, Batch, A], problem: PpoProblem[View], found: Iterable[Ints]) -> None:
    """Make the likeliest of the fastest placements known the label: of those found, the label, and its other names.

    All of them are timed, as names of equal devices may decide between events at the same time. The label's seconds
    stay the least that were ever found. A label that owes them to an order of its own is left as it is.
    """
    label = problem.prepared.incumbent
    if label.placement is None:
        return
    equal = _as_fast(problem.prepared, distinct(np.stack([label.placement, *found])))
    others = [other for each in equal for other in renamings(problem.prepared.problem, each)]
    candidates = _as_fast(problem.prepared, distinct(np.stack([*equal, *others]))[:MOST] if len(equal) else equal)
    if len(candidates) > 1:
        likeliest = int(likelihoods(policy, problem.view, candidates).argmax())
        label.placement, label.priorities = candidates[likeliest].copy(), None


def _as_fast(prepared: PreparedProblem, placements: Ints) -> Ints:
    """Those of (placements, units) that fit and are as fast as the label under the problem's rule."""
    if not len(placements):
        return placements
    outcomes = prepared.evaluate(placements)
    return placements[outcomes.fits & (outcomes.step_seconds <= prepared.incumbent.value * (1 + EQUAL))]
