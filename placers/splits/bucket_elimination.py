"""Bucket elimination: the exact minimum of pairwise costs, in time exponential in the width of the graph alone.

A variable is eliminated by adding up all tables that it is in, and keeping the least over its choices as a table over
the others: dynamic programming without an order of layers (Bertelè and Brioschi 1972; Dechter 1999). OptCNN's node
elimination is the case of two neighbours, Tofu's search over levels of a graph the case of one certain order.
"""

import numpy as np
from numpy.typing import NDArray

from graphs.op_graph import Floats
from placers.splits.elimination_order import MOST_BYTES, EliminationOrder, min_fill_order
from placers.splits.pairwise_costs import Assignment, PairwiseCosts, assigned

Table = tuple[tuple[int, ...], Floats]  # variables in ascending order, costs with an axis for each


def least(costs: PairwiseCosts, order: EliminationOrder | None = None, *, most_bytes: float = MOST_BYTES) -> Assignment:
    """An assignment of least cost; the order is that of least fill unless one is given.

    Raises InputError if the tables would take more bytes than allowed, before any is allocated, and if every assignment
    is forbidden.
    """
    if order is None:
        order = min_fill_order(costs.choices, costs.pairs, most_bytes)
    order.check(most_bytes)
    tables: list[list[Table]] = [[] for _ in range(len(costs))]  # each with one of its variables: the first to go
    position = np.argsort(np.array(order.order, np.int64)) if len(costs) else np.zeros(0, np.int64)
    for u, v, together in costs.terms():
        table = ((u, v), together) if u < v else ((v, u), together.T)
        tables[u if position[u] < position[v] else v].append(table)
    decisions: list[NDArray[np.int16]] = []
    for variable, scope in zip(order.order, order.scopes, strict=True):
        total = _added(variable, scope, costs.alone[variable], tables[variable])
        tables[variable] = []
        decisions.append(total.argmin(axis=-1).astype(np.int16))
        if scope:
            tables[min(scope, key=position.__getitem__)].append((scope, total.min(axis=-1)))
    chosen = np.zeros(len(costs), np.int64)
    for variable, scope, decision in zip(order.order[::-1], order.scopes[::-1], decisions[::-1], strict=True):
        chosen[variable] = decision[tuple(chosen[list(scope)])]
    return assigned(costs, chosen)


def _added(variable: int, scope: tuple[int, ...], alone: Floats, tables: list[Table]) -> Floats:
    """(choices of the scope ..., choices of the variable) the sum of all tables that the variable is in."""
    axis = {other: place for place, other in enumerate((*scope, variable))}
    size = {other: length for variables, table in tables for other, length in zip(variables, table.shape, strict=True)}
    total = np.zeros([*(size[other] for other in scope), len(alone)])
    total += alone
    for variables, table in tables:
        axes = [axis[other] for other in variables]
        shape = [1] * total.ndim
        for place, length in zip(axes, table.shape, strict=True):
            shape[place] = length
        total += table.transpose(np.argsort(axes)).reshape(shape)
    return total
