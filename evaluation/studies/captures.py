"""Models captured for studies: each once in a process, whoever asks for it and into how many groups it is tied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial

from graphs.grouping import tie_ops
from graphs.load import load_cluster, load_graph
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from training.problem_sets import load_problems
from training.recipe import ProblemSet

Problems = Mapping[str, Callable[[], Problem]]  # by name; made only where something is left to be done


def problems_of(pairs: Iterable[tuple[str, str]], groups: int) -> Problems:
    """Graphs and clusters by their specs, in so many op groups at most."""

    def problem(graph: str, cluster: str) -> Problem:
        return Problem(tied(graph, groups), load_cluster(cluster))

    return {f"{graph}@{cluster}": partial(problem, graph, cluster) for graph, cluster in pairs}


def training_problems(chosen: ProblemSet, seed: int) -> list[Problem]:
    """Those of `training.problem_sets.load_problems`."""
    return load_problems(chosen, seed=seed, capture=captured)


@cache
def tied(spec: str, groups: int) -> OpGraph:
    """The graph of a spec in so many op groups at most. Raises InputError as `load_graph` does."""
    return tie_ops(captured(spec), groups)


@cache
def captured(spec: str) -> OpGraph:
    """The graph of a spec, op by op. Raises InputError as `load_graph` does."""
    return load_graph(spec)
