"""In which order variables are eliminated, and what tables that takes: known before any is allocated."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from placers.splitting.pairwise_costs import PairwiseCosts

TRIES = 8  # of orders, where the first takes many operations
MANY = 2**20  # operations, for which another order is worth the time to find it
COST_BYTES = 8  # of a table's entry, while it is needed
CHOICE_BYTES = 2  # of a decision for each entry, which is kept until the end


@dataclass(frozen=True)
class EliminationOrder:
    """Variables in the order in which they are eliminated."""

    order: tuple[int, ...]  # (variables,)
    scopes: tuple[tuple[int, ...], ...]  # (variables,) on which others each depends when its turn comes
    width: int  # the most of these: the induced width of the order
    largest: int  # entries of the largest table
    entries: int  # of all tables: the operations that it takes
    held_bytes: int  # of all tables and decisions at the worst time


def min_fill_order(costs: PairwiseCosts) -> EliminationOrder:
    """The next variable is the one whose elimination joins the fewest pairs of others that were not joined.

    Of several it is the one with the smallest table, then the first. The usual heuristic; on a series-parallel graph,
    and on any other of width two, it finds an order of least width. Where tables are large, ties are also broken at
    random a few times, and the order with the fewest entries counts.
    """
    best = described(costs, _min_fill(costs, None))
    if best.entries > MANY:
        rng = random.Random(0)
        others = (described(costs, _min_fill(costs, rng)) for _ in range(TRIES))
        best = min([best, *others], key=lambda order: order.entries)
    return best


def _min_fill(costs: PairwiseCosts, rng: random.Random | None) -> list[int]:
    choices = costs.choices.tolist()
    near = _neighbours(costs)

    def key(variable: int) -> tuple[float, ...]:
        """Pairs that its elimination joins, and what breaks ties."""
        own = near[variable]
        joined = sum(len(own & near[other]) for other in own)  # each pair of neighbours that are joined, twice
        pairs = (len(own) * (len(own) - 1) - joined) // 2
        return (pairs, rng.random()) if rng else (pairs, _entries(own, choices) * choices[variable], variable)

    keys = {variable: key(variable) for variable in range(len(near))}  # of those that are left
    queue = [(own, variable) for variable, own in keys.items()]
    heapify(queue)
    order = []
    while queue:
        own, variable = heappop(queue)
        if keys.get(variable) != own:
            continue  # it has changed since
        order.append(variable)
        del keys[variable]
        for other in _remove(variable, near):
            keys[other] = key(other)
            heappush(queue, (keys[other], other))
    return order


def described(costs: PairwiseCosts, order: Sequence[int]) -> EliminationOrder:
    """A given order with what it takes."""
    choices = costs.choices.tolist()
    near = _neighbours(costs)
    tables = [{u, v} for u, v in costs.pairs.tolist()]
    live: dict[int, set[int]] = dict(enumerate(tables))  # by number, the variables of each table that is still needed
    of: list[set[int]] = [set() for _ in near]  # the tables of each variable
    for number, table in live.items():
        for variable in table:
            of[variable].add(number)
    scopes: list[tuple[int, ...]] = []
    largest, entries, kept, most = 1, 0, 0, 0
    held = sum(_entries(table, choices) for table in tables) * COST_BYTES
    for variable in order:
        scope = tuple(sorted(near[variable]))
        rest = _entries(scope, choices)
        whole = rest * choices[variable]
        largest, entries = max(largest, whole), entries + whole
        kept += rest * CHOICE_BYTES
        most = max(most, held + kept + 2 * whole * COST_BYTES)  # the table, and what finding its least takes
        for number in tuple(of[variable]):
            table = live.pop(number)
            held -= _entries(table, choices) * COST_BYTES
            for other in table:
                of[other].discard(number)
        number = len(tables) + len(scopes)
        live[number] = set(scope)
        held += rest * COST_BYTES
        for other in scope:
            of[other].add(number)
        scopes.append(scope)
        _remove(variable, near)
    return EliminationOrder(tuple(order), tuple(scopes), max(map(len, scopes), default=0), largest, entries, most)


def _neighbours(costs: PairwiseCosts) -> list[set[int]]:
    near: list[set[int]] = [set() for _ in range(len(costs))]
    for u, v in costs.pairs.tolist():
        near[u].add(v)
        near[v].add(u)
    return near


def _entries(scope: Sequence[int] | set[int], choices: Sequence[int]) -> int:
    return math.prod(choices[variable] for variable in scope)


def _remove(variable: int, near: list[set[int]]) -> set[int]:
    """Join the neighbours of a variable and take it out; those whose neighbourhoods, or pairs in them, changed."""
    own = near[variable]
    touched = set(own)
    for other in own:
        near[other] |= own
        near[other] -= {other, variable}
        if len(own) > 1:
            touched |= near[other]
    near[variable] = set()
    return touched
