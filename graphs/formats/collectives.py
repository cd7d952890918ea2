"""Communication of one rank: the kinds of its ops, which say what is exchanged, and among which ranks.

A kind is the name of a collective, as Chakra's schema has it, or of a message, and the ranks of the group if they are
known: "ALL_REDUCE:ranks=0-7", "ALL_GATHER:ranks=0+8+16+24". What an op accesses are the bytes that a rank puts in.
"""

import itertools
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from graphs.formats.chakra_nodes import Collective, NodeType
from graphs.op_graph import Bools, OpGraph

COMMUNICATION = frozenset(
    (
        *(each.name for each in Collective if each != Collective.BARRIER),
        *(each.name for each in NodeType if each.name.startswith("COMM_")),
    )
)  # names of kinds of ops that move data from and to other ranks
WAIT = "wait"  # the kind of ops at which a stream waits for a collective
_RANKS = ":ranks="


def communication_kind(name: str, ranks: Iterable[int] = ()) -> str:
    """The kind of a collective among ranks, in ascending order; without any it is not known which."""
    runs = list[list[int]]()
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    said = "+".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"{name}{_RANKS}{said}" if said else name


def name_of_kind(kind: str) -> str:
    """What a kind is, whatever the ranks."""
    return kind.partition(_RANKS)[0]


@lru_cache(1 << 10)
def ranks_of(kind: str) -> tuple[int, ...]:
    """The ranks that a kind names, in ascending order; none if it names none."""
    said = kind.partition(_RANKS)[2]
    ends = ([int(end) for end in run.split("-")] for run in said.split("+") if run)
    return tuple(itertools.chain.from_iterable(range(run[0], run[-1] + 1) for run in ends))


def communicates(graph: OpGraph) -> Bools:
    """(ops,) whether each op moves data from or to other ranks."""
    found = {kind for kind in set(graph.kinds) if name_of_kind(kind) in COMMUNICATION}
    return np.array([kind in found for kind in graph.kinds] if found else np.zeros(len(graph)), np.bool_)


def is_sent(graph: OpGraph) -> Bools:
    """(ops,) whether each op moves bytes from or to other ranks, so that its time follows from links."""
    sent: Bools = communicates(graph) & (graph.bytes_accessed > 0)
    return sent
