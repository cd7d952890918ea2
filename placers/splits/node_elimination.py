"""OptCNN's own search (Jia et al. 2018, section 5): eliminate nodes and edges, enumerate what remains, undo.

    node elimination   a node j with exactly one edge in and one out: i -> j -> k becomes i -> k, with
                       t(ci, ck) = min over cj of t_X(ci, cj) + [t_C + t_S](cj) + t_X(cj, ck)
    edge elimination   two edges i -> k become one, whose costs are the sum

Neither changes the least cost. What is left when neither applies is enumerated, so it must be a few nodes: two for a
series-parallel graph. Bucket elimination needs no such end.
"""

import math
from dataclasses import dataclass

import numpy as np

from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints
from placers.splits.pairwise_costs import Assignment, PairwiseCosts, assigned

MOST_ASSIGNMENTS = 2**24  # of the nodes that remain


@dataclass(frozen=True, eq=False)
class Removal:
    """A node that was eliminated, with all that is needed to choose for it once its neighbours are chosen."""

    node: int
    before: int
    after: int
    best: Ints  # (choices of before, choices of after) choice of the node


@dataclass(frozen=True, eq=False)
class Reduced:
    """What OptCNN's eliminations leave of a graph."""

    costs: PairwiseCosts  # of the nodes that remain
    nodes: Ints  # (remaining,) which of the given nodes these are
    removals: tuple[Removal, ...]  # in the order in which they were done

    def undone(self, chosen: Ints) -> Ints:
        """(given nodes,) an assignment of the remaining nodes, (remaining,), and the best choices of all others."""
        whole = np.zeros(len(self.nodes) + len(self.removals), np.int64)
        whole[self.nodes] = chosen
        for removal in reversed(self.removals):
            whole[removal.node] = removal.best[whole[removal.before], whole[removal.after]]
        return whole


def reduced(costs: PairwiseCosts) -> Reduced:
    """All node and edge eliminations that can be done; pairs are edges in the direction in which they are given."""
    following: list[dict[int, Floats]] = [{} for _ in costs.alone]
    preceding: list[set[int]] = [set() for _ in costs.alone]
    for u, v, together in costs.terms():
        following[u][v] = together
        preceding[v].add(u)
    removals: list[Removal] = []
    waiting, is_left = list(range(len(costs)))[::-1], [True] * len(costs)
    while waiting:
        node = waiting.pop()
        if not is_left[node] or len(preceding[node]) != 1 or len(following[node]) != 1:
            continue
        ((before,), ((after, to_after),)) = preceding[node], following[node].items()
        if before == after:  # a cycle of two, which no network has
            continue
        through = following[before].pop(node)[:, :, None] + (costs.alone[node][:, None] + to_after)[None]
        least = through.min(axis=1)
        parallel = following[before].get(after)
        following[before][after] = least if parallel is None else parallel + least  # the edge elimination
        following[node], preceding[node], is_left[node] = {}, set(), False
        preceding[after] = (preceding[after] - {node}) | {before}
        removals.append(Removal(node, before, after, through.argmin(axis=1)))
        waiting += [after, before]  # an edge fewer may make them eliminable
    nodes = np.flatnonzero(is_left)
    number = {node: index for index, node in enumerate(nodes.tolist())}
    terms = [(number[u], number[v], table) for u in nodes.tolist() for v, table in following[u].items()]
    return Reduced(PairwiseCosts.summed([costs.alone[node] for node in nodes], terms), nodes, tuple(removals))


def least_by_node_elimination(costs: PairwiseCosts, *, most: int = MOST_ASSIGNMENTS) -> Assignment:
    """An assignment of least cost. Raises InputError if more than `most` assignments would be left to enumerate."""
    left = reduced(costs)
    choices = left.costs.choices.tolist()
    assignments = math.prod(map(float, choices))  # not of whole numbers: those of a large network are too long
    if assignments > most:
        raise InputError(
            f"OptCNN's eliminations leave {len(choices)} nodes with {assignments:.3g} assignments to enumerate, more "
            f"than {most:.3g}; bucket elimination needs no such enumeration"
        )
    return assigned(costs, left.undone(_enumerated(left.costs)))


def _enumerated(costs: PairwiseCosts) -> Ints:
    """(variables,) the first assignment of least cost: all of them, as one table with an axis per variable.

    Variables with one choice are in no pair, and have no axis.
    """
    open_ = np.flatnonzero(costs.choices > 1).tolist()
    axis = {variable: place for place, variable in enumerate(open_)}
    total = np.zeros([len(costs.alone[variable]) for variable in open_])
    terms: list[tuple[tuple[int, ...], Floats]] = [((variable,), costs.alone[variable]) for variable in open_]
    terms += [((u, v), table) if u < v else ((v, u), table.T) for u, v, table in costs.terms()]
    for variables, table in terms:
        shape = [1] * total.ndim
        for variable in variables:
            shape[axis[variable]] = len(costs.alone[variable])
        total += table.reshape(shape)
    chosen = np.zeros(len(costs), np.int64)
    chosen[open_] = np.unravel_index(int(total.argmin()), total.shape) if open_ else []
    return chosen
