"""Orders of very many ops: by keys, and topological ones, in compiled code."""

import numpy as np
from numpy.typing import NDArray

from envs.simulation.compiled import compiled
from graphs.op_graph import Ints


def by_key(key: Ints, count: int) -> tuple[NDArray[np.uint32], Ints]:
    """(count + 1,) where each key, 0 <= key < count, begins once they are sorted, and (keys,) their stable order."""
    starts = np.zeros(count + 1, np.uint32)
    np.cumsum(np.bincount(key, minlength=count), out=starts[1:])
    order = np.empty(len(key), np.int64)
    _sort(np.array(key, np.int64), starts[:-1].astype(np.int64), order)  # a copy: the key may be read-only
    return starts, order


def topological_position(edges: Ints, nodes: int) -> Ints:
    """(nodes,) as `OpGraph.topological_position` of the edges, (edges, 2), which have no cycle; in a tenth of its time.

    Kahn's algorithm.
    """
    _, by_consumer = by_key(edges[:, 1], nodes)
    starts, order = by_key(edges[by_consumer, 0], nodes)
    waiting, queue, position = (
        np.bincount(edges[:, 1], minlength=nodes),
        np.empty(nodes, np.int64),
        np.empty(nodes, np.int64),
    )
    _visit(starts, edges[by_consumer[order], 1], waiting, queue, position)
    return position


@compiled
def _sort(key: Ints, position: Ints, order: Ints) -> None:
    """Write the positions of the keys, in their order; `position`, where each key begins, is used up."""
    for index in range(len(key)):
        order[position[key[index]]] = index
        position[key[index]] += 1


@compiled
def _visit(starts: NDArray[np.uint32], following: Ints, waiting: Ints, queue: Ints, position: Ints) -> None:
    """Write the position at which each node becomes ready; `waiting`, edges into each, is used up."""
    ready = 0
    for node in range(len(waiting)):
        if waiting[node] == 0:
            queue[ready] = node
            ready += 1
    done = 0
    while done < ready:
        node = queue[done]
        position[node] = done
        done += 1
        for edge in range(starts[node], starts[node + 1]):
            target = following[edge]
            waiting[target] -= 1
            if waiting[target] == 0:
                queue[ready] = target
                ready += 1
