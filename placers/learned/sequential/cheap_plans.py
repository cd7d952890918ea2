"""Candidates of a policy among which cheap placers' plans are, so that the best of them is no worse than those.

Of 16 candidates 8 are the policy's own, 4 are plans of cheap placers, those that the policy itself finds likeliest, and
4 are its greedy passes over these: a plan is then the pass before, which the policy may mend. The same 16 simulations
find more than 16 samples where the policy is weak, and nearly as much where it is strong.
"""

import numpy as np

from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.distinct import distinct
from placers.learned.sequential.action import SequentialBatch
from placers.learned.sequential.coarse import candidates_by_levels, grains
from placers.learned.sequential.layout import renamed_by_use
from placers.learned.sequential.policy import SequentialPolicy
from placers.search.levels import levels_of
from placers.search.starts import TIME_SHARE, Asked, affordable, starts_of

PART = 4  # one in PART candidates is a cheap plan, and one a pass over one
MOST_SECONDS = 5.0  # of a processor, as estimated, for all cheap plans
ENDLESS = 10**12  # simulations: it is not their number that bounds the time for plans


def candidates_with_cheap_plans(
    policy: SequentialPolicy, problem: Problem, count: int, seed: int, groups: int = 0
) -> Ints:
    """At most `count` different placements, (count, units): first the policy's most likely one, which is all of one.

    Of two or three, one is a cheap plan. Where there are too few cheap plans, more candidates are the policy's own,
    which places large problems in `groups` first, if that is not 0.
    """
    levels = grains(problem, groups)
    if count == 1:
        return candidates_by_levels(policy, levels, count, seed)
    batch = policy.stack([policy.view(problem)])
    cheap = likeliest(policy, batch, cheap_plans(problem, seed))[: max(count // PART, 1)]
    mended = policy.passes_over(batch, cheap[: count // PART]) if count >= PART else cheap[:0]
    own = candidates_by_levels(policy, levels, count - len(cheap) - len(mended), seed)
    return distinct(np.concatenate([own, cheap, mended]))


def cheap_plans(problem: Problem, seed: int) -> Ints:
    """(plans, units) of the placers that searches start from, without any simulation; at least one."""
    levels = levels_of(problem)
    asked = [Asked(placer, 0, level) for placer, level in affordable(levels, ENDLESS, MOST_SECONDS / TIME_SHARE)]
    return starts_of(asked, levels, len(asked), seed).placements


def likeliest(policy: SequentialPolicy, batch: SequentialBatch, placements: Ints) -> Ints:
    """Different placements of a single problem by the policy's probability of them, the likeliest first.

    Those that only name equal devices otherwise are the same one.
    """
    different = distinct(np.array([renamed_by_use(batch.layouts[0], placement) for placement in placements]))
    return different[np.argsort(-policy.likelihoods(batch, different), kind="stable")]
