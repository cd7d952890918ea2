"""PEFT: predict earliest finish time (Arabnejad & Barbosa 2014): HEFT with a look ahead at what follows each choice.

For each op and device, the optimistic cost table has the least seconds that what follows takes if the op is there and
everything after it goes where it runs best. Ready ops are taken by its mean over devices, and each goes where its
finish plus its entry is least. Memory, tied ops and launches are handled as in HEFT.
"""

from dataclasses import dataclass

import numpy as np

from envs.simulation.held_memory import Room
from graphs.algorithms.order import ready_first
from graphs.op_graph import Floats
from placers.heft import earliest_finish
from placers.solvers.list_scheduling import ListSchedule, ListScheduler, SchedulingTasks


@dataclass(frozen=True)
class Peft(ListScheduler):
    """Each op to the device that promises the earliest end of everything."""

    def schedule(self, tasks: SchedulingTasks, room: Room) -> ListSchedule:
        """Ready ops are taken by their mean in the table, which is also what each choice looks ahead to."""
        table = optimistic_costs(tasks)
        return earliest_finish(tasks, room, ready_first(tasks.graph.edges, -table.mean(axis=1)), table)


build = Peft


def optimistic_costs(tasks: SchedulingTasks) -> Floats:
    """(ops, devices) seconds, equation 5 of the paper.

    OCT(i, p) = max over successors j of min over devices w of OCT(j, w) + seconds(j, w) + (mean transfer if w != p).
    """
    graph, seconds, table = tasks.graph, tasks.seconds, np.zeros_like(tasks.seconds)
    offsets, by_producer = graph.successors
    consumers, transfer = graph.edges[by_producer, 1], tasks.mean_transfers()[by_producer]
    for op in graph.topological_order[::-1].tolist():
        out = slice(offsets[op], offsets[op + 1])
        there = table[consumers[out]] + seconds[consumers[out]]
        elsewhere = there.min(axis=1) + transfer[out]
        table[op] = np.minimum(there, elsewhere[:, None]).max(axis=0, initial=0.0)
    return table
