"""The problems of studies; a model is captured only if work on it is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Unpack

from evaluation.commands.arguments import AUTO, CostModelLike, Groups, RuntimeOptions
from evaluation.commands.problems import problem_of
from graphs.cluster import Cluster
from graphs.files.suites import suite_specs
from graphs.op_graph import OpGraph
from graphs.problem import Problem

Problems = Mapping[str, Callable[[], Problem]]  # by name; a problem is built only if work on it is left


_problem_of = partial(problem_of, reserve="none")  # studies judge by tensors alone


class ConditionOptions(RuntimeOptions, total=False):
    """What a study says of all of its problems."""

    precision: str
    cost_model: CostModelLike


def problems_of(
    pairs: Iterable[tuple[str, str]], groups: Groups = None, **timing: Unpack[ConditionOptions]
) -> Problems:
    """Graphs and clusters by their specs, as `problem_of` makes them."""
    return {
        f"{graph}@{cluster}": partial(_problem_of, graph, cluster, groups=groups, **timing) for graph, cluster in pairs
    }


def suite_problems(suite: str, groups: Groups = None, **timing: Unpack[ConditionOptions]) -> Problems:
    """The problems of a suite, as `problems_of`. Raises InputError for an unknown suite."""
    return problems_of(suite_specs(suite), groups, **timing)


def model_problem(
    graph: str, cluster: str, name: str, groups: Groups = None, **timing: Unpack[ConditionOptions]
) -> Problem:
    """A captured model on a cluster, by their specs, with a NAME@CLUSTER."""
    model, _, where = name.rpartition("@")
    found = _problem_of(graph, cluster, with_law=True, groups=groups, **timing)
    return replace(found, graph=replace(found.graph, name=model), cluster=replace(found.cluster, name=where))


def measured_problem(
    graph: OpGraph | str, cluster: Cluster | str = "", groups: Groups = None, **timing: Unpack[ConditionOptions]
) -> Problem:
    """A graph of measured times, which count whatever cost model and precision the timing has."""
    timing |= ConditionOptions(cost_model=AUTO, precision=AUTO)
    return _problem_of(graph, cluster, groups=groups, **timing)
