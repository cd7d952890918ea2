"""Cuts: by which index every op of a split graph is divided along every axis of a mesh of devices.

    recursive   one axis after the other, the outermost first: each exactly, given those before (Tofu's recursion)
    refined     then each axis again, given all others, while that helps
    joint       all axes at once, where tables are small enough: the exact minimum

All of them keep to a limit on the bytes that a device holds, if there is one, or say that they found no way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphs.op_graph import Floats
from placers.splitting.elimination_order import MOST_BYTES, min_fill_order
from placers.splitting.memory_limit import least_within
from placers.splitting.options import Splitting
from placers.splitting.pairwise_costs import PairwiseCosts
from placers.splitting.parts import Option
from placers.splitting.pricing import Pricing

ROUNDS = 10  # of refinement, over all axes
ROUNDING = 1e-9  # relative: less is no gain


@dataclass(frozen=True, eq=False)
class Cuts:
    """What is divided by what, and what that costs."""

    options: tuple[Option, ...]  # (variables,) per axis the index, or ""
    cost: float
    held: float  # bytes that a device holds
    fits: bool  # false: they are more than the limit, and nothing better was found

    def of_ops(self, splitting: Splitting) -> tuple[Option, ...]:
        """(ops,) the index that each op divides along each axis, or ""."""
        return tuple(self.options[variable] for variable in splitting.of_op)

    def of_tensors(self, splitting: Splitting) -> dict[int, Option]:
        """The dimension, "d0", that the layout of each tensor divides along each axis, of those that have one."""
        return {number: self.options[variable] for number, variable in splitting.of_tensor.items()}


def recursive(pricing: Pricing, limit: float = np.inf) -> Cuts:
    """One axis after the other, each of least cost given those before."""
    splitting = pricing.splitting
    chosen: list[Option] | None = None
    for axis in range(len(splitting.mesh)):
        options = splitting.further(chosen)
        later = math.prod(splitting.mesh[axis + 1 :])  # which divide what is held again
        chosen = _best(pricing, options, pricing.costs(options, axis), limit * later)
    return described(pricing, chosen or [], limit)


def refined(pricing: Pricing, cuts: Cuts, limit: float = np.inf) -> Cuts:
    """Each axis again, given all others, until none changes: never worse."""
    splitting = pricing.splitting
    for _ in range(ROUNDS):
        before = cuts
        for axis in range(len(splitting.mesh)):
            options = splitting.instead(cuts.options, axis)
            found = described(pricing, _best(pricing, options, pricing.costs(options), limit), limit)
            if (found.fits, -found.cost) > (cuts.fits, -cuts.cost + ROUNDING * abs(cuts.cost)):
                cuts = found
        if cuts is before:
            break
    return cuts


def joint(pricing: Pricing, limit: float = np.inf, *, most_bytes: float = MOST_BYTES) -> Cuts:
    """All axes at once, exactly. Raises InputError, before anything is allocated, if tables would be too large."""
    options = pricing.splitting.joint()
    min_fill_order([len(several) for several in options], pricing.splitting.pairs, most_bytes)
    return described(pricing, _best(pricing, options, pricing.costs(options), limit), limit)


def described(pricing: Pricing, options: Sequence[Option], limit: float = np.inf) -> Cuts:
    """Any cuts with what they cost and hold."""
    one_each = [[option] for option in options]
    cost = pricing.costs(one_each).cost(np.zeros(len(options), np.int64))
    held = float(sum(of.sum() for of in pricing.held_bytes(one_each)))
    return Cuts(tuple(options), cost, held, held <= limit * (1 + ROUNDING))


def _best(pricing: Pricing, options: list[list[Option]], costs: PairwiseCosts, limit: float) -> list[Option]:
    held: list[Floats] = pricing.held_bytes(options)
    found = least_within(costs, held, limit)
    return [several[choice] for several, choice in zip(options, found.chosen.tolist(), strict=True)]
