"""Launches of collectives: what they cost the host of a plan, whose steps take no time of their own.

What devices exchange of one tensor in one micro-batch is a collective, as for `envs.expansion.exchanges`: scattered
parts of a sum and what is gathered of it are one all-reduce, whatever its steps. The thread of each device that takes
part launches it once, and once more if it is computed again.
"""

import numpy as np

from envs.expansion.expanded import Role
from graphs.host import Collectives
from graphs.op_graph import Ints, OpGraph

LIKE_WORK = (Role.WORK, Role.RECOMPUTED)


def collectives_of(graph: OpGraph, placement: Ints, stage: Ints, role: Ints, tensor: Ints) -> Collectives:
    """Of an expanded graph, each op on a device, (ops,); `tensor`, (ops,), is equal of ops that hold parts of the same.

    What leaves its stage is a message and no collective. A device launches a collective with the first op that sends,
    or with the first step that waits for an op, or if it only receives, with the op that reads what it receives.
    """
    devices, works = int(placement.max(initial=0)) + 1, np.isin(role, LIKE_WORK)
    producer, consumer = graph.edges.T
    is_sent = ~graph.control & (placement[producer] != placement[consumer]) & (stage[producer] == stage[consumer])
    exchanged = np.zeros(int(tensor.max(initial=0)) + 1, np.bool_)
    exchanged[tensor[producer[is_sent]]] = True
    first_steps = works[producer] & ~works[consumer] & exchanged[tensor[consumer]]
    begins = np.concatenate([consumer[first_steps], producer[is_sent & works[producer]]])
    after = np.concatenate([producer[first_steps], producer[is_sent & works[producer]]])
    here = tensor[begins] * devices + placement[begins]
    first = np.unique(here * 2 + (role[after] == Role.RECOMPUTED), return_index=True)[1]
    there = tensor[producer[is_sent]] * devices + placement[consumer[is_sent]]
    reads, of_read = np.unique(there, return_index=True)
    only_received = of_read[~np.isin(reads, here)]
    ops = np.concatenate([begins[first], consumer[is_sent][only_received]])
    steps = np.zeros(len(graph), np.bool_)
    steps[producer[is_sent]] = True
    return Collectives(np.bincount(ops, minlength=len(graph)), steps)
