"""Cuts: by which index every op of a split graph is divided along every axis of a mesh of devices.

    recursive   one axis after the other, the outermost first: each exactly, given those before (Tofu's recursion)
    uniform     the same index along all axes, exactly: so is data parallelism, and doing everything everywhere
    refined     then each axis again, given all others, while that helps
    joint       all axes at once, where tables are small enough: the exact minimum

All of them keep to a limit on the bytes that a device holds, if there is one, or say that they found no way.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graphs.foundation.errors import InputError
from placers.splits.bucket_elimination import least
from placers.splits.elimination_order import EliminationOrder, min_fill_order
from placers.splits.memory_limit import least_within
from placers.splits.options import Splitting
from placers.splits.pairwise_costs import Assignment, PairwiseCosts
from placers.splits.parts import Option
from placers.splits.pricing import Pricing

ROUNDS = 10  # of refinement, over all axes
ROUNDING = 1e-9  # relative: less is no gain
MOST_OPERATIONS = 3e8  # for all axes at once: some seconds


@dataclass(frozen=True, eq=False)
class SplitAssignment:
    """A choice of the index that each variable is divided by, and its cost."""

    options: tuple[Option, ...]  # (variables,) per axis the index, or ""
    cost: float
    held: float  # bytes that a device holds
    fits: bool  # false: they are more than the limit, and nothing better was found
    is_least: bool = False  # none of the options that were looked at cost less within the limit

    def of_ops(self, splitting: Splitting) -> tuple[Option, ...]:
        """(ops,) the index that each op divides along each axis, or ""."""
        return tuple(self.options[variable] for variable in splitting.of_op)


def searched(pricing: Pricing, limit: float = np.inf, *, most_operations: float = MOST_OPERATIONS) -> SplitAssignment:
    """The best of recursive and uniform cuts, refined, and of joint ones if these take no more operations than given.

    Along one axis all of these are the same, and where the joint ones are known to cost least, no others are looked at.
    Raises InputError if not even one axis can be cut exactly, since too many choices depend on each other.
    """
    if len(pricing.splitting.mesh) == 1:
        return recursive(pricing, limit)
    found = list[SplitAssignment]()
    if operations_of_joint(pricing) <= most_operations:
        found = [joint(pricing, limit)]
        if found[0].is_least:
            return found[0]
    found += [refined(pricing, min(recursive(pricing, limit), uniform(pricing, limit), key=_rank), limit)]
    return min(found, key=_rank)


def _rank(cuts: SplitAssignment) -> tuple[bool, float, float]:
    """The smaller, the better: what fits, at least cost; or else what holds the least."""
    return not cuts.fits, cuts.cost if cuts.fits else cuts.held, cuts.cost


def operations_of_joint(pricing: Pricing) -> float:
    """How many entries tables have if all axes are cut at once; infinite if they are too large."""
    splitting = pricing.splitting
    choices = splitting.joint_sizes()
    try:
        order = _order(splitting, choices)
    except InputError:
        return np.inf
    of_pairs = np.array(choices, np.float64)[splitting.pairs].prod(axis=1)
    return order.entries + math.prod(splitting.mesh) * float(of_pairs.sum())


def _order(splitting: Splitting, choices: Sequence[int]) -> EliminationOrder:
    """The order in which variables with so many choices are eliminated. Raises InputError if tables are too large."""
    pairs, sizes = splitting.pairs, np.array(choices, np.int64)
    return min_fill_order(sizes, pairs[(sizes[pairs] > 1).all(axis=1)])  # of one choice there are no costs of pairs


def recursive(pricing: Pricing, limit: float = np.inf) -> SplitAssignment:
    """One axis after the other, each of least cost given those before."""
    splitting = pricing.splitting
    chosen: tuple[Option, ...] = ()
    for axis in range(len(splitting.mesh)):
        options = splitting.further(chosen if axis else None)
        later = math.prod(splitting.mesh[axis + 1 :])  # which divide what is held again
        found = cheapest(pricing, options, pricing.costs(options, axis), limit * later)
        if len(splitting.mesh) == 1:
            return found
        chosen = found.options
    return described(pricing, chosen, limit)


def uniform(pricing: Pricing, limit: float = np.inf) -> SplitAssignment:
    """The same index along all axes, for each op."""
    options = pricing.splitting.uniform()
    return cheapest(pricing, options, pricing.costs(options), limit)


def refined(pricing: Pricing, cuts: SplitAssignment, limit: float = np.inf) -> SplitAssignment:
    """Each axis again, given all others, until none changes: never worse."""
    splitting = pricing.splitting
    for _ in range(ROUNDS):
        before = cuts
        for axis in range(len(splitting.mesh)):
            options = splitting.instead(cuts.options, axis)
            found = cheapest(pricing, options, pricing.costs(options), limit)
            is_gain = found.fits != cuts.fits or not np.isclose(found.cost, cuts.cost, ROUNDING, 0)
            if is_gain and _rank(found) < _rank(cuts):
                cuts = found
        if cuts is before:
            break
    return cuts


def joint(
    pricing: Pricing,
    limit: float = np.inf,
    solve: Callable[[PairwiseCosts], Assignment] = least,
) -> SplitAssignment:
    """All axes at once, exactly; `solve` may be OptCNN's eliminations.

    Raises InputError, before anything is allocated, if tables would be too large.
    """
    options = pricing.splitting.joint()
    if solve is least:
        _order(pricing.splitting, [len(several) for several in options])  # before pairs are priced
    return cheapest(pricing, options, pricing.costs(options), limit, solve)


def described(pricing: Pricing, options: Sequence[Option], limit: float = np.inf) -> SplitAssignment:
    """Any cuts with what they cost and hold."""
    one_each = [[option] for option in options]
    cost = pricing.costs(one_each).cost(np.zeros(len(options), np.int64))
    held = float(sum(of.sum() for of in pricing.held_bytes(one_each)))
    return SplitAssignment(tuple(options), cost, held, held <= limit * (1 + ROUNDING))


def cheapest(
    pricing: Pricing,
    options: list[list[Option]],
    costs: PairwiseCosts,
    limit: float,
    solve: Callable[[PairwiseCosts], Assignment] = least,
) -> SplitAssignment:
    """Of the given options and their costs those of least cost within a limit on bytes held."""
    found = least_within(costs, pricing.held_bytes(options), limit, solve)
    chosen = tuple(several[choice] for several, choice in zip(options, found.chosen.tolist(), strict=True))
    return SplitAssignment(chosen, found.cost, found.held, found.held <= limit * (1 + ROUNDING), found.gap <= 0)
