"""Eliminations of OptCNN on the graph of a step, which has more nodes and edges than its graph of layers.

    update                      OptCNN's graph has layers only, and of each t_C + t_S, computing and synchronising its
      |                         weights for a configuration (Jia et al. 2018, section 5.1). A step has nodes for these,
    layer --- loss              with choices of their own: each is folded into its one neighbour, at its least cost.
     |  |
     |  gradient                What passes back goes the other way, so edges have no direction here: a node with two
     |  |                       edges is eliminated, and two edges of the same nodes become one.
    layer ...

The least cost of all stays what it was.
"""

import numpy as np

from graphs.op_graph import Floats, Ints
from placers.splits.node_elimination import least_by_node_elimination
from placers.splits.pairwise_costs import Assignment, PairwiseCosts, assigned


def least_of_layers(costs: PairwiseCosts) -> Assignment:
    """An assignment of least cost: nodes with one neighbour or two are eliminated, and what remains is enumerated.

    Raises InputError if that leaves too many assignments to enumerate.
    """
    near: list[dict[int, Floats]] = [{} for _ in costs.alone]  # costs with another, (own choices, its choices)
    for u, v, together in costs.terms():
        near[u][v], near[v][u] = together, together.T
    alone = [own.copy() for own in costs.alone]
    removed: list[tuple[int, tuple[int, ...], Ints]] = []  # a node, its neighbours, and the best choice for theirs
    waiting, is_left = list(range(len(costs)))[::-1], np.ones(len(costs), np.bool_)
    while waiting:
        node = waiting.pop()
        others = tuple(near[node])
        if not is_left[node] or not 1 <= len(others) <= 2:
            continue
        through = alone[node] + near[others[0]][node]  # (choices of the first neighbour, own choices)
        if len(others) == 2:
            through = through[:, None] + near[others[1]][node]
        least = through.min(axis=-1)
        removed.append((node, others, through.argmin(axis=-1)))
        is_left[node], near[node] = False, {}
        for other in others:
            del near[other][node]
        if len(others) == 1:
            alone[others[0]] += least
        else:
            first, second = others
            together = near[first].get(second, 0.0) + least
            near[first][second], near[second][first] = together, together.T
        waiting += others  # an edge fewer may make them eliminable
    nodes = np.flatnonzero(is_left)
    number = {node: place for place, node in enumerate(nodes.tolist())}
    terms = [(number[u], number[v], near[u][v]) for u in nodes.tolist() for v in near[u] if u < v]
    chosen = np.zeros(len(costs), np.int64)
    chosen[nodes] = least_by_node_elimination(PairwiseCosts.summed([alone[node] for node in nodes], terms)).chosen
    for node, others, best in reversed(removed):
        chosen[node] = best[tuple(chosen[list(others)])]
    return assigned(costs, chosen)
