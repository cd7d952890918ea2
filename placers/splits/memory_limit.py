r"""A limit on memory: the least cost among assignments within a number of bytes, by a Lagrangian.

Bytes are added to costs at a price. With a price the problem is pairwise costs again, and its exact minimum gives both
an assignment and a bound: no assignment within the limit costs less than cost + price x (bytes - limit). The price is
found between an assignment that holds too much and one that does not, as the slope of the line through both:

    cost  x too much, no price                  the lower hull of (bytes, cost) of all assignments; each step
            \                                   finds a corner below the line, or that the line is the hull
              x ------- limit
                  \--------- x least bytes

Between two corners there may be better ones that no price finds, such as half of many equal layers. So single choices
are then changed for cheaper ones while there is room.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graphs.op_graph import Floats, Ints
from placers.splits.bucket_elimination import least
from placers.splits.pairwise_costs import Assignment, PairwiseCosts, assigned

STEPS = 60  # far more than hulls were seen to have corners on the way
SWEEPS = 20  # over all variables, while any of them changes
ROUNDING = 1e-9  # relative


@dataclass(frozen=True, eq=False)
class Limited:
    """The best assignment within a limit that was found, or one of the least bytes if none is."""

    chosen: Ints  # (variables,)
    cost: float
    held: float  # bytes
    price: float  # cost per byte at the end; 0 where the limit does not matter
    bound: float  # no assignment within the limit costs less
    fits: bool  # false: no assignment keeps to the limit, and this one holds the least

    @property
    def gap(self) -> float:
        """How far the cost may be above the least within the limit, as a share of the cost; nan if nothing fits."""
        return (self.cost - self.bound) / (self.cost or 1.0) if self.fits else np.nan


def least_within(
    costs: PairwiseCosts,
    held: Sequence[Floats],
    limit: float,
    solve: Callable[[PairwiseCosts], Assignment] = least,
) -> Limited:
    """The best assignment that holds at most `limit` bytes; `held` are bytes of each choice of each variable.

    Raises InputError as `solve` does.
    """

    def bytes_of(chosen: Ints) -> float:
        return sum(float(of[choice]) for of, choice in zip(held, chosen, strict=True))

    free = solve(costs)
    over = (free.cost, bytes_of(free.chosen))
    if over[1] <= limit:
        return Limited(free.chosen, free.cost, over[1], 0.0, free.cost, True)
    chosen = solve(_bytes_alone(costs, held)).chosen
    best, under = assigned(costs, chosen), (costs.cost(chosen), bytes_of(chosen))
    if under[1] > limit:
        return Limited(chosen, best.cost, under[1], np.inf, np.inf, False)
    price, bound = 0.0, over[0]
    for _ in range(STEPS):
        price = (under[0] - over[0]) / (over[1] - under[1])
        found = solve(costs.plus([price * of for of in held]))
        cost, size = costs.cost(found.chosen), bytes_of(found.chosen)
        bound = max(bound, cost + price * (size - limit))
        is_corner = cost + price * size < (under[0] + price * under[1]) * (1 - ROUNDING)
        if size > limit:
            over = (cost, size)
        else:
            under = (cost, size)
            best = Assignment(found.chosen, cost) if cost < best.cost else best
        if not is_corner:
            break
    best = _filled(costs, held, limit, best.chosen)
    return Limited(best.chosen, best.cost, bytes_of(best.chosen), price, min(bound, best.cost), True)


def _filled(costs: PairwiseCosts, held: Sequence[Floats], limit: float, chosen: Ints) -> Assignment:
    """An assignment within the limit that no cheaper choice of one variable within it improves."""
    chosen = chosen.copy()
    near: list[list[tuple[int, Floats]]] = [[] for _ in costs.alone]  # costs with another, (own choices, its choices)
    for u, v, together in costs.terms():
        near[u].append((v, together))
        near[v].append((u, together.T))
    room = limit - sum(float(of[choice]) for of, choice in zip(held, chosen, strict=True))
    for _ in range(SWEEPS):
        changed = False
        for variable, alone in enumerate(costs.alone):
            cost = alone + sum(table[:, chosen[other]] for other, table in near[variable])
            more = held[variable] - held[variable][chosen[variable]]
            choice = int(np.where(more <= room, cost, np.inf).argmin())
            if cost[choice] < cost[chosen[variable]]:
                room -= float(more[choice])
                chosen[variable], changed = choice, True
        if not changed:
            break
    return assigned(costs, chosen)


def _bytes_alone(costs: PairwiseCosts, held: Sequence[Floats]) -> PairwiseCosts:
    """Bytes in place of costs, with the same choices forbidden."""
    allowed = [np.where(np.isfinite(alone), of, np.inf) for alone, of in zip(costs.alone, held, strict=True)]
    forbidden = [np.where(np.isfinite(table), 0.0, np.inf) for table in costs.together]
    return PairwiseCosts(tuple(allowed), costs.pairs, tuple(forbidden))
