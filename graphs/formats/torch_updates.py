"""Recorded updates of weights, one for each forward op that reads weights, where that runs.

Optimizers update weight by weight, in a dozen ops each, or all at once, in an op that no plan could divide. What their
ops take together is shared among weights by their bytes. Moments are left out of what is held before a step: they are
the optimizer's, of which a problem says what it keeps of a weight (`graphs.op_graph.optimizers`).
"""

import numpy as np

from graphs.op_graph import Bools, Floats, Ints, OpGraph, Phase
from graphs.op_graph.held_tensors import HeldTensors

UPDATE = "update"  # the kind of such an op


def updates_by_weight(graph: OpGraph) -> OpGraph:
    """The graph with such updates in place of those that were recorded; as it is without any, or without weights."""
    kept = np.flatnonzero(graph.phase != Phase.UPDATE)
    if len(kept) == len(graph) or not len(graph.weights):
        return graph
    place = np.full(len(graph), -1)
    place[kept] = np.arange(len(kept))
    first = {weight: op for op, weight in reversed(graph.weight_uses.tolist()) if graph.phase[op] == Phase.FORWARD}
    users = np.unique(list(first.values()))
    update_of = {op: len(kept) + number for number, op in enumerate(users.tolist())}
    bytes_of = np.zeros(len(graph))
    np.add.at(bytes_of, list(first.values()), graph.weights[list(first)])
    share = bytes_of[users] / max(graph.weights.sum(), 1.0)

    def shared(values: Floats) -> Floats:
        return np.concatenate([values[kept], share * values[graph.phase == Phase.UPDATE].sum()])

    edges, control = _edges(graph, place, update_of)
    uses = [(int(place[op]), weight) for op, weight in graph.weight_uses.tolist() if place[op] >= 0]
    names = tuple(f"{graph.names[op]}.{UPDATE}" for op in users)
    return OpGraph(
        graph.name, (*(graph.names[op] for op in kept), *names),
        (*(graph.kinds[op] for op in kept), *(UPDATE for _ in users)),
        shared(graph.flops), shared(graph.bytes_accessed), np.append(graph.output_bytes[kept], np.zeros(len(users))),
        edges, control, graph.weights,
        np.array([*uses, *((update_of[op], weight) for weight, op in first.items())]),
        np.append(graph.phase[kept], np.full(len(users), Phase.UPDATE)),
        np.append(np.where(graph.mirror[kept] >= 0, place[graph.mirror[kept]], -1), place[users]),
        measured_seconds=shared(graph.measured_seconds), held=_held(graph, place),
    )  # fmt: skip


def _edges(graph: OpGraph, place: Ints, update_of: dict[int, int]) -> tuple[Ints, Bools]:
    """Edges and which of them only order: an update reads what is tied to the user of its weight, or to no user."""
    found = dict[tuple[int, int], bool]()
    for (producer, consumer), control in zip(graph.edges.tolist(), graph.control.tolist(), strict=True):
        if place[producer] < 0:
            continue
        tied = int(graph.mirror[producer])
        updates = [update_of[tied]] if tied in update_of else list(update_of.values())
        for reader in [int(place[consumer])] if place[consumer] >= 0 else updates:
            found[int(place[producer]), reader] = control
    return np.array(sorted(found), np.int64).reshape(-1, 2), np.array([found[each] for each in sorted(found)], np.bool_)


def _held(graph: OpGraph, place: Ints) -> HeldTensors | None:
    """What is held for other ops than updates."""
    if graph.held is None:
        return None
    uses = graph.held.uses[place[graph.held.uses[:, 0]] >= 0]
    tensors, number = np.unique(uses[:, 1], return_inverse=True)
    return HeldTensors(graph.held.bytes[tensors], np.column_stack([place[uses[:, 0]], number])) if len(uses) else None
