"""Launches of collectives: what they cost the host of a plan, whose steps take no time of their own.

What devices exchange of one tensor in one micro-batch is a collective, as for `envs.expansion.exchanges`: scattered
parts of a sum and what is gathered of it are one all-reduce, whatever its steps. The thread of each device that takes
part launches it once, and once more if it is computed again.
"""

from __future__ import annotations

import numpy as np

from envs.expansion.expanded import Role
from graphs.host import Collectives
from graphs.op_graph import Ints, OpGraph

STEPS = (Role.SLICE, Role.SUM, Role.SEND, Role.GATE)


def collectives_of(graph: OpGraph, placement: Ints, role: Ints, tensor: Ints) -> Collectives:
    """Of an expanded graph, each op on a device, (ops,); `tensor`, (ops,), is equal of ops that hold parts of the same.

    A device launches a collective with the first step that waits for an op, or if it only receives, with the op that
    reads what it receives.
    """
    is_step, devices = np.isin(role, STEPS), int(placement.max(initial=0)) + 1
    producer, consumer = graph.edges.T
    is_sent = is_step[producer] & ~graph.control & (placement[producer] != placement[consumer])
    exchanged = np.zeros(int(tensor.max(initial=0)) + 1, np.bool_)
    exchanged[tensor[producer[is_sent]]] = True
    begins = np.flatnonzero(~is_step[producer] & is_step[consumer] & exchanged[tensor[consumer]])
    here = tensor[consumer[begins]] * devices + placement[consumer[begins]]
    first = np.unique(here * 2 + (role[producer[begins]] == Role.RECOMPUTED), return_index=True)[1]
    there = tensor[producer[is_sent]] * devices + placement[consumer[is_sent]]
    reads, of_read = np.unique(there, return_index=True)
    only_received = of_read[~np.isin(reads, here)]
    ops = np.concatenate([consumer[begins[first]], consumer[is_sent][only_received]])
    return Collectives(np.bincount(ops, minlength=len(graph)), is_step)
