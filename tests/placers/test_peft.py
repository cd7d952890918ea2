"""PEFT against the example of its paper."""

from dataclasses import replace

import numpy as np

from envs.simulation.held_memory import HeldMemory, Room
from envs.simulation.simulator import simulate
from graphs.algorithms.order import ready_first
from graphs.problem import Problem
from graphs.runtime import LONGEST_PATH
from placers.heft import Heft
from placers.peft import Peft, optimistic_costs
from placers.solvers.list_scheduling import SchedulingTasks
from tests.oracle.toys import toy_cluster, toy_graph

# Arabnejad and Barbosa 2014, figure 1: ten tasks, three processors.
SECONDS = np.array([
    [22, 21, 36], [22, 18, 18], [32, 27, 43], [7, 10, 4], [29, 27, 35],
    [26, 17, 24], [14, 25, 30], [29, 23, 36], [15, 21, 8], [13, 16, 33],
], np.float64)  # fmt: skip
EDGES = {
    (0, 1): 17, (0, 2): 31, (0, 3): 29, (0, 4): 13, (0, 5): 7, (1, 7): 3, (1, 8): 30, (2, 6): 16, (3, 7): 11,
    (3, 8): 7, (4, 8): 57, (5, 7): 5, (6, 9): 9, (7, 9): 42, (8, 9): 7,
}  # fmt: skip
GRAPH, CLUSTER = toy_graph([1] * 10, list(EDGES)), toy_cluster(3)
TASKS = SchedulingTasks(GRAPH, CLUSTER, SECONDS, np.array(list(EDGES.values()), np.float64))


def test_the_optimistic_costs_look_to_the_end() -> None:
    table = optimistic_costs(TASKS)
    assert table[0].tolist() == [64, 68, 86]  # as in the paper's table 1, whose mean is 72.7
    assert table[6].tolist() == [13, 16, 22]  # by hand: the last op there, or on the first processor after 9
    assert table[9].tolist() == [0, 0, 0]


def test_the_makespan_is_that_of_the_paper_and_shorter_than_hefts() -> None:
    held = HeldMemory.of(Problem(GRAPH, CLUSTER))
    assert Peft().schedule(TASKS, Room(held)).finish.max() == 122
    assert Heft().schedule(TASKS, Room(held)).finish.max() == 133


def test_under_their_own_orders_steps_take_as_long_as_in_the_paper() -> None:
    """Under the fixed rules, the same placements take longer."""
    graph = replace(GRAPH, edge_bytes=TASKS.payload)
    problem = Problem(graph, CLUSTER.with_free_links(), op_seconds=SECONDS)
    for placer, makespan, by_rule in ((Peft(), 122, 137), (Heft(), 133, 160)):
        plan = placer.place(problem).plan
        assert simulate(problem, plan).step_seconds == makespan
        assert simulate(problem, replace(plan, order=LONGEST_PATH)).step_seconds == by_rule


def test_ops_are_taken_when_they_are_ready_by_their_rank() -> None:
    graph = toy_graph([1, 1, 1, 1], [(0, 2), (1, 3)])
    assert ready_first(graph.edges, -np.array([1.0, 2.0, 9.0, 0.0])).tolist() == [1, 0, 2, 3]
