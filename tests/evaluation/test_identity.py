"""The digits of a problem: what changes them, and what does not."""

from dataclasses import replace

from evaluation.records.identity import problem_digits
from graphs.op_graph.batch_law import COSTS, BatchLaw
from graphs.problem import Problem, objective_of
from tests.oracle.toys import random_graph, toy_cluster


def test_another_law_of_the_batch_is_another_problem() -> None:
    graph = random_graph(6, 1)
    laws = [BatchLaw(8, *(part * getattr(graph, key) for key in COSTS)) for part in (0.5, 0.25, 0.0)]
    problems = [Problem(replace(graph, batch_law=law), toy_cluster(2)) for law in (None, *laws)]
    assert len(set(map(problem_digits, problems))) == 4


def test_the_samples_count_where_they_change_the_objective() -> None:
    graph = random_graph(6, 1)
    bare, few, many = (replace(graph, batch_law=law) for law in (None, BatchLaw(8), BatchLaw(16)))
    assert len({problem_digits(Problem(each, toy_cluster(2))) for each in (bare, few, many)}) == 1
    loads = {problem_digits(Problem(each, toy_cluster(2), objective=objective_of("max-load"))) for each in (few, many)}
    assert len(loads) == 2
