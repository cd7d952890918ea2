"""In which order variables are eliminated, and what tables that takes: known before any is allocated."""

import math
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush

import numpy as np

from graphs.foundation.errors import InputError
from graphs.op_graph import Ints

TRIES = 8  # of orders, where the first takes many operations
MANY = 2**24  # operations, for which another order is worth the time to find it
COST_BYTES = 8  # of a table's entry, while it is needed
CHOICE_BYTES = 2  # of a decision for each entry, which is kept until the end
MOST_BYTES = 2**30  # of tables at one time
KNOWN = 32  # orders that are kept, as costs of the same variables have other prices only; ours
MOST_CHOICES = 2**15  # of a variable: decisions are kept in two bytes each


@dataclass(frozen=True)
class EliminationOrder:
    """Variables in the order in which they are eliminated."""

    order: tuple[int, ...]  # (variables,)
    scopes: tuple[tuple[int, ...], ...]  # (variables,) on which others each depends when its turn comes
    width: int  # the most of these: the induced width of the order
    largest: int  # entries of the largest table
    entries: int  # of all tables: the operations that it takes
    held_bytes: int  # of all tables and decisions at the worst time

    def check(self, most_bytes: float = MOST_BYTES) -> None:
        """Raise InputError if elimination in this order would need more bytes than allowed."""
        _check_bytes(self.held_bytes, self.width, most_bytes)


def _check_bytes(held: int, width: int, most: float) -> None:
    if held > most:
        raise InputError(
            f"the exact search would need tables of {held:.3g} bytes or more, since {width + 1} choices depend on each "
            f"other; at most {most:.3g} are allowed; tie ops that are alike, such as the time steps of a recurrent "
            "network, or offer fewer choices"
        )


def min_fill_order(choices: Sequence[int] | Ints, pairs: Ints, most_bytes: float = MOST_BYTES) -> EliminationOrder:
    """An order for variables with `choices`, (variables,), of which pairs, (pairs, 2), have costs together.

    The next variable is the one whose elimination joins the fewest pairs of others that were not joined.

    Of several it is the one with the smallest table, then the first. The usual heuristic; on a series-parallel graph,
    and on any other of width two, it finds an order of least width. Where tables are large, ties are also broken at
    random a few times, and the order with the fewest entries counts. Raises InputError, before anything is allocated,
    if the tables would take more bytes than allowed.
    """
    sizes = tuple(int(size) for size in choices)
    if max(sizes, default=0) > MOST_CHOICES:
        raise InputError(f"a variable has {max(sizes)} choices; at most {MOST_CHOICES} can be told apart")
    return _ordered(sizes, tuple(sorted((min(pair), max(pair)) for pair in pairs.tolist())), most_bytes)


@lru_cache(KNOWN)
def _ordered(sizes: tuple[int, ...], joined: tuple[tuple[int, int], ...], most_bytes: float) -> EliminationOrder:
    """The order, found once for all costs of the same choices and pairs."""
    pairs = np.array(joined, np.int64).reshape(-1, 2)
    best = described(sizes, pairs, _min_fill(sizes, pairs, None, most_bytes))
    if best.entries > MANY:
        rng = random.Random(0)
        for _ in range(TRIES):
            with suppress(InputError):  # another order would take too much
                other = described(sizes, pairs, _min_fill(sizes, pairs, rng, most_bytes))
                best = min(best, other, key=lambda order: order.entries)
    best.check(most_bytes)
    return best


def _min_fill(choices: Sequence[int], pairs: Ints, rng: random.Random | None, most_bytes: float) -> list[int]:
    near = _neighbours(len(choices), pairs)

    def key(variable: int) -> tuple[float, ...]:
        """Pairs that its elimination joins, and what breaks ties."""
        own = near[variable]
        joined = sum(len(own & near[other]) for other in own)  # each pair of neighbours that are joined, twice
        fill = (len(own) * (len(own) - 1) - joined) // 2
        return (fill, rng.random()) if rng else (fill, _entries(own, choices) * choices[variable], variable)

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
        _check_bytes(
            _entries(near[variable], choices) * choices[variable] * COST_BYTES, len(near[variable]), most_bytes
        )
        for other in _remove(variable, near):
            changed = key(other)
            if changed != keys[other]:
                keys[other] = changed
                heappush(queue, (changed, other))
    return order


def described(choices: Sequence[int], pairs: Ints, order: Sequence[int]) -> EliminationOrder:
    """A given order with what it takes."""
    near = _neighbours(len(choices), pairs)
    tables = [{u, v} for u, v in pairs.tolist()]
    live: dict[int, set[int]] = dict(enumerate(tables))  # by number, the variables of each table that is still needed
    of: list[set[int]] = [set() for _ in near]  # the tables of each variable
    for number, table in live.items():
        for variable in table:
            of[variable].add(number)
    scopes = list[tuple[int, ...]]()
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


def _neighbours(variables: int, pairs: Ints) -> list[set[int]]:
    near: list[set[int]] = [set() for _ in range(variables)]
    for u, v in pairs.tolist():
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
