"""Rings: all-reduces among shards that made parts of the same sums, as the schedule says, where all of them want all.

Gradients of weights that the same shards add up are put into buckets, in the order in which they are made.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from envs.expansion.collectives import Sums, collective
from envs.expansion.draft import Draft
from envs.expansion.expanded import TensorSlice
from envs.expansion.servers import by_server
from graphs.cluster import Cluster
from graphs.op_graph import Ints


@dataclass(frozen=True, eq=False)
class Ring:
    """Shards that add up what they made; ops are named as in `envs.expansion.shards.moves.GraphTemplate`."""

    devices: tuple[int, ...]  # (members,)
    ready: tuple[int, ...]  # (members,) ops that end when the parts are there
    done: tuple[int, ...]  # (members,) ops that end when the sums are there
    origin: int  # op of the given graph
    stage: int
    bytes: float
    repeated: bool  # for every micro-batch
    sums: tuple[TensorSlice, ...] = ()  # what is added up, if it is held: not statistics


def write_rings(draft: Draft, rings: list[Ring], first: list[int], step: list[int]) -> None:
    """Add the all-reduces to the draft; `first` and `step` of the ops that are done are filled in, by their names."""
    layout = draft.layout
    alike: defaultdict[tuple[int, int, bool], list[tuple[Ring, Ints]]] = defaultdict(list)
    for ring in rings:
        order, servers = _order(layout.problem.cluster, ring)
        alike[len(ring.devices), servers, ring.repeated].append((ring, order))
    for (members, servers, repeated), several in alike.items():
        batches = layout.micro_batches if repeated else 1
        device = np.array([np.array(ring.devices)[order] for ring, order in several]).repeat(batches, axis=0)
        ready = np.array(
            [
                [first[ring.ready[at]] + step[ring.ready[at]] * batch for at in order.tolist()]
                for ring, order in several
                for batch in (range(batches) if repeated else [layout.micro_batches - 1])
            ]
        )
        number = np.tile(np.arange(batches) if repeated else np.array([-1]), len(several))
        sums = Sums(
            device, np.full_like(device, -1), np.broadcast_to(number[:, None], device.shape),
            np.array([ring.origin for ring, _ in several]).repeat(batches),
            np.array([ring.stage for ring, _ in several]).repeat(batches),
            np.array([ring.bytes for ring, _ in several]).repeat(batches),
        )  # fmt: skip
        done = collective(draft, layout.all_reduce, sums, ready, servers)
        for row, (ring, order) in enumerate(several):
            for column, at in enumerate(order.tolist()):
                first[ring.done[at]] = int(done[row * batches, column])
                step[ring.done[at]] = members if repeated else 0
                if ring.sums:
                    ends = done[row * batches : (row + 1) * batches, column].tolist()
                    draft.sums |= dict.fromkeys(ends, ring.sums)


def _order(cluster: Cluster, ring: Ring) -> tuple[Ints, int]:
    """Positions of the members in the order of the ring, and how many servers they are on, with as many on each."""
    order, server = by_server(cluster, ring.devices, ring.bytes / len(ring.devices))
    on_server = np.bincount(server)
    return order, len(on_server) if (on_server == on_server[0]).all() else 1
