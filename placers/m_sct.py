"""m-SCT (Jeon et al. 2020, "Baechi"): m-ETF in which devices wait for the favourite children of what they ran last.

Small communication times (Hanen and Munier 1995): a linear program gives each op at most one favourite child, the one
whose way to another device would delay the end most, and each op at most one parent that favours it. Its relaxation is
rounded as Baechi rounds it. The schedule is then m-ETF's, except for devices that wait ("awake" in the paper): from
the end of an op until its output could have reached another device, its device takes nothing but the favourite child
and urgent ops, whose inputs are on all devices. It does not wait for a child that could not be placed there.

The program counts mean seconds over devices and mean transfers over links, as HEFT does. In a graph of more than
`LARGEST_PROGRAM` ops it chooses among units instead of ops: a unit is one task, and links that lead back to an earlier
unit are left out. Memory, tied ops and launches are handled as in m-ETF.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import block_array, csr_array, eye_array, sparray

from envs.simulation.held_memory import Room
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints, OpGraph
from graphs.op_groups.units import Units
from placers.m_etf import WaitingDevices, earliest_task_first
from placers.solvers.list_scheduling import ListSchedule, ListScheduler, SchedulingTasks

ROUND_UP = 0.1  # a relaxed choice below it makes a favourite: Baechi's threshold; at most 0.5, or choices would clash
LARGEST_PROGRAM = 10_000  # ops; a program of that size takes seconds


@dataclass(frozen=True)
class SmallCommunicationTimes(ListScheduler):
    """Whatever can start first, where it can, on devices that wait for favourite children."""

    def schedule(self, tasks: SchedulingTasks, room: Room) -> ListSchedule:
        """Favourites follow from mean seconds and mean transfers."""
        transfer = tasks.mean_transfers()
        favourites = favourite_edges(tasks.graph, tasks.seconds.mean(axis=1), transfer)
        return earliest_task_first(tasks, room, WaitingDevices(tasks.graph, favourites, transfer, len(tasks.cluster)))


build = SmallCommunicationTimes


def favourite_edges(graph: OpGraph, seconds: Floats, transfer: Floats) -> Ints:
    """(favourites,) edges from an op to its favourite child, given seconds per op, (ops,), and edge, (edges,).

    An op has at most one, and is that of at most one op; where the program is one of units, that is true of units.
    """
    apart = np.diff(graph.units[graph.edges], axis=1)[:, 0] != 0
    if len(graph) <= LARGEST_PROGRAM:
        return np.flatnonzero(relaxed_choices(seconds, graph.edges, np.where(apart, transfer, 0.0)) < ROUND_UP)
    position = np.argsort(Units(graph).order)
    ends = position[graph.units[graph.edges]]
    onward = np.flatnonzero(ends[:, 0] < ends[:, 1])
    # an output goes to a unit once, however many of its ops read it
    _, first = np.unique(graph.edge_output[onward] * graph.num_units + ends[onward, 1], return_index=True)
    sent = onward[first]
    pair, link = np.unique(ends[sent] @ [graph.num_units, 1], return_inverse=True)
    links = np.stack(np.divmod(pair, graph.num_units), axis=1)
    tasks = np.bincount(position[graph.units], weights=seconds, minlength=graph.num_units).astype(np.float64)
    carried = np.bincount(link, weights=transfer[sent], minlength=len(links)).astype(np.float64)
    chosen = sent[relaxed_choices(tasks, links, carried)[link] < ROUND_UP]
    return chosen[transfer[chosen] > 0]


def relaxed_choices(seconds: Floats, edges: Ints, transfer: Floats) -> Floats:
    """(edges,) 0 where a child is a favourite and 1 where it is not, relaxed, so that all ends as soon as possible.

    Tasks take `seconds` (tasks,), and start `transfer` (edges,) times the choice after each of their producers ends.
    The choices of the n edges from a task sum to n - 1 at least, as do those of the edges into a task; choices that
    cost nothing are 1. Raises InputError if HiGHS fails.
    """
    tasks, count = len(seconds), len(edges)
    scale = float(seconds.mean()) or 1.0
    rows = np.arange(count)
    choice = csr_array((transfer / scale, (rows, rows)), shape=(count, count))
    producer, consumer = (csr_array((np.ones(count), (rows, edges[:, end])), shape=(count, tasks)) for end in (0, 1))
    rules: list[list[sparray | None]] = [  # columns: choices, starts, the end
        [choice, producer - consumer, None],  # an op starts after its producers
        [None, eye_array(tasks), csr_array(np.full((tasks, 1), -1.0))],  # the end comes after all
        [-producer.T, None, None],  # of the children of a task, at most one is a favourite
        [-consumer.T, None, None],  # of the parents of a task, at most one favours it
    ]
    matrix: Any = block_array(rules, format="csr")  # linprog takes it, though its types do not say so
    degrees = [np.bincount(edges[:, side], minlength=tasks) for side in (0, 1)]
    bounds = [(float(free), 1.0) for free in transfer <= 0] + [(0.0, np.inf)] * (tasks + 1)
    result = linprog(
        np.eye(1, count + tasks + 1, count + tasks)[0],
        A_ub=matrix,
        b_ub=np.concatenate([-seconds[edges[:, 0]] / scale, -seconds / scale, *(1.0 - np.maximum(degrees, 1))]),
        bounds=bounds,
        method="highs",
    )
    if result.x is None:
        raise InputError(
            f"m_sct: HiGHS could not solve the program of favourite children ({result.message}); use m_etf"
        )
    choices: Floats = result.x[:count]
    return choices
