"""Kinds of ops: what is known of an op by its kind, asked once for each kind and not for each of thousands of ops."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from graphs.op_graph import RECOMPUTED, Bools, OpGraph

Said = TypeVar("Said", bound=bool | int)


def by_kind(graph: OpGraph, says: Callable[[str], Said]) -> NDArray[Any]:
    """(ops,) what a function says of the kind of each op."""
    said = {kind: says(kind) for kind in set(graph.kinds)}
    if len(values := set(said.values())) == 1:
        return np.full(len(graph), values.pop())
    return np.array([said[kind] for kind in graph.kinds])


def ends_with(graph: OpGraph, ending: str) -> Bools:
    """(ops,) whether the kind of each op ends so."""
    return by_kind(graph, lambda kind: kind.endswith(ending)).astype(np.bool_)


def runs_again(graph: OpGraph) -> Bools:
    """(ops,) whether each is a forward op that a checkpoint runs again in the backward pass."""
    return ends_with(graph, RECOMPUTED)
