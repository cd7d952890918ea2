"""The problems of studies; each model is captured once in a process, for all groupings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, partial

from envs.costs.costs import AUTO, timed
from graphs.files.load import load_cluster, load_graph
from graphs.files.suites import suite_specs
from graphs.op_graph import OpGraph
from graphs.op_groups.grouping import tie_ops
from graphs.problem import Problem
from graphs.runtime import IDEAL, Runtime

Problems = Mapping[str, Callable[[], Problem]]  # by name; a problem is built only if work on it is left


def problems_of(pairs: Iterable[tuple[str, str]], groups: int, runtime: Runtime = IDEAL) -> Problems:
    """Graphs and clusters by their specs, in at most `groups` op groups."""

    def problem(graph: str, cluster: str) -> Problem:
        return Problem(tied(graph, groups), load_cluster(cluster), runtime=runtime)

    return {f"{graph}@{cluster}": partial(problem, graph, cluster) for graph, cluster in pairs}


def suite_problems(suite: str, groups: int, runtime: Runtime = IDEAL) -> Problems:
    """The problems of a suite, as `problems_of`. Raises InputError for an unknown suite."""
    return problems_of(suite_specs(suite), groups, runtime)


def model_problem(graph: str, cluster: str, name: str, *, groups: int = 0) -> Problem:
    """A captured model on a cluster, by their specs, timed, with a NAME@CLUSTER; `groups` is the count of op groups."""
    model, _, where = name.rpartition("@")
    captured = replace(load_graph(graph, with_law=True), name=model)
    devices = replace(load_cluster(cluster), name=where)
    return timed(Problem(tie_ops(captured, groups) if groups else captured, devices), AUTO)


@cache
def tied(spec: str, groups: int) -> OpGraph:
    """The graph of a spec in at most `groups` op groups. Raises InputError as `load_graph` does."""
    return tie_ops(captured(spec), groups)


@cache
def captured(spec: str) -> OpGraph:
    """The graph of a spec, op by op. Raises InputError as `load_graph` does."""
    return load_graph(spec)
