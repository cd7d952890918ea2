"""PEFT: predict earliest finish time (Arabnejad & Barbosa 2014): HEFT with a look ahead at what follows each choice.

The optimistic cost table says, for each op and device, how long what follows takes at least if the op is there and
everything after it goes where it runs best. Ready ops are taken by its mean over devices, and each goes where its
finish plus its entry is least. Memory, tied ops and launches are handled as in HEFT.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.held_memory import Room
from envs.placer_result import PlacerResult
from graphs.cluster import Cluster
from graphs.foundation.by_name import Named
from graphs.op_graph import Floats, OpGraph
from graphs.order import ready_first
from graphs.problem import Problem
from placers.heft import schedule
from placers.solvers.list_scheduling import Schedule, mean_transfers, place_within_memory


@dataclass(frozen=True)
class Peft(Named):
    """Each op to the device that promises the earliest end of everything."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The first schedule, unsimulated, with a budget of one; with more, as HEFT does."""
        return place_within_memory(problem, self.name, seed, budget, look_ahead)


build = Peft


def look_ahead(graph: OpGraph, cluster: Cluster, seconds: Floats, payload: Floats, room: Room) -> Schedule:
    """Place every unit of a graph; the arguments are those of `placers.heft.schedule`."""
    table = optimistic_costs(graph, cluster, seconds, payload)
    order = ready_first(graph.edges, -table.mean(axis=1))
    return schedule(graph, cluster, seconds, payload, room, order=order, outlook=table)


def optimistic_costs(graph: OpGraph, cluster: Cluster, seconds: Floats, payload: Floats) -> Floats:
    """(ops, devices) seconds, equation 5 of the paper.

    OCT(i, p) = max over successors j of min over devices w of OCT(j, w) + seconds(j, w) + (mean transfer if w != p).
    """
    table = np.zeros_like(seconds)
    offsets, by_producer = graph.successors
    consumers = graph.edges[by_producer, 1]
    transfer = mean_transfers(graph, cluster, payload)[by_producer]
    for op in graph.topological_order[::-1].tolist():
        out = slice(offsets[op], offsets[op + 1])
        there = table[consumers[out]] + seconds[consumers[out]]
        elsewhere = there.min(axis=1) + transfer[out]
        table[op] = np.minimum(there, elsewhere[:, None]).max(axis=0, initial=0.0)
    return table
