"""Offloaded updates: weights that are updated by the CPU nearest to their device, which has the optimizer's state.

    device    ... backward  ->  parcel                    gate  ->  gather, or the end of the step
                                  |  gradient               ^  new weights, in place
    CPU                           '---->  update  ----------'

A parcel takes the place of the update for what comes before it, and a gate for what comes after it: gradients are sent
once, when they are added up over micro-batches and replicas, and of replicas that hold them in parts each sends its
own. On the device stay weights and gradients, in parts or not; on the CPU are the optimizer's state, with master copies
of weights in half precision, and a copy of other weights. The paper's update that is a step late is not simulated.

Source: Ren et al. 2021, "ZeRO-Offload: Democratizing billion-scale model training" (USENIX ATC).
"""

import numpy as np

from envs.expansion.draft import Draft
from envs.expansion.expanded import Role
from envs.expansion.layout import Layout
from graphs.algorithms.pairs import equal_pairs
from graphs.op_graph import Bools, Floats, Ints, Phase
from graphs.op_graph.weight_memory import weight_gradient_bytes


def offload_updates(draft: Draft) -> None:
    """Send gradients to updates that run on a CPU, and what these make of weights back; all else is connected."""
    layout, graph = draft.layout, draft.layout.problem.graph
    copies = np.flatnonzero(layout.is_offloaded)
    if not len(copies):
        return
    update, device, replica = layout.origin[copies], layout.replica_device[copies], layout.replica[copies]
    parts = layout.parts[update]
    sizes = graph.trained_weights, weight_gradient_bytes(graph)
    weights, gradients = (_updated_bytes(layout, each)[update] / parts for each in sizes)
    is_held = _is_held(layout)[update]  # as outputs of ops, and not in room that is set aside
    stage = layout.stage[update]
    parcels = draft.add(
        len(copies), Role.PARCEL, device, origin=_last_gradient(layout)[update], replica=replica, stage=stage,
        output_bytes=np.where(is_held, gradients, 0.0),
    )  # fmt: skip
    gates = draft.add(
        len(copies), Role.GATE, device, origin=update, replica=replica, stage=stage,
        output_bytes=graph.output_bytes[update] / parts,
    )  # fmt: skip
    producer, consumer = draft.edges.T
    of_copy = np.full(draft.ops, -1)
    of_copy[copies] = np.arange(len(copies))
    after, before = np.flatnonzero(of_copy[producer] >= 0), np.flatnonzero(of_copy[consumer] >= 0)
    draft.reroute(after, gates[of_copy[producer[after]]])
    draft.reroute(before, parcels[of_copy[consumer[before]]], end=1)
    draft.connect(parcels, copies, message_bytes=np.where(is_held, np.nan, gradients))
    draft.connect(copies, gates)
    draft.resize(copies, 0.0)
    draft.send(copies, weights, np.ones(len(copies)))
    draft.send(gates, graph.sent_bytes[update] / parts, np.ones(len(gates)))


def _updated_bytes(layout: Layout, size: Floats) -> Floats:
    """(ops,) the sum of `size`, (weights,), over what each updates: where several read a weight, the first of them."""
    graph = layout.problem.graph
    updates = np.flatnonzero(graph.phase == Phase.UPDATE)
    mirror = graph.mirror[updates]
    at, use = equal_pairs(np.where(mirror >= 0, mirror, updates), graph.weight_uses[:, 0])
    op, weight = updates[at], graph.weight_uses[use, 1]
    key = layout.stage[op] * len(graph.weights) + weight
    first = np.lexsort((op, key))
    first = first[np.unique(key[first], return_index=True)[1]]
    return np.bincount(op[first], size[weight[first]], minlength=len(graph)).astype(np.float64)


def _is_held(layout: Layout) -> Bools:
    """(ops,) whether gradients that an update reads are outputs of ops."""
    graph = layout.problem.graph
    found = np.zeros(len(graph), np.bool_)
    found[graph.edges[layout.problem.weight_memory.gradients[graph.edges[:, 0]], 1]] = True
    return found


def _last_gradient(layout: Layout) -> Ints:
    """(ops,) of an update the gradient that it reads, the last in the graph, or itself where it reads none."""
    graph = layout.problem.graph
    found = np.arange(len(graph))
    edges = graph.edges[graph.phase[graph.edges[:, 0]] == Phase.BACKWARD]
    edges = edges[np.argsort(edges[:, 0])]
    found[edges[:, 1]] = edges[:, 0]
    return found
