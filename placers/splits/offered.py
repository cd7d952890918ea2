"""Degrees that are offered: tensor, sequence, context and expert parallelism as engineers would take them on a cluster.

Each only where it can be: shards within a server, for products that columns and rows divide; parts of the sequence
where there are too few samples for all devices; and experts where there are any.
"""

import math

from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.contract.whole_plans import accelerators, most_that_divide
from placers.pipelines.published.servers import Servers
from placers.splits.column_row import most_columns_and_rows
from placers.splits.experts import along_experts
from placers.splits.sequences import along_sequence
from placers.splits.undivided import why_undivided

TENSOR_PARALLEL = "tensor parallel"


def offered_degrees(problem: Problem) -> dict[str, str]:
    """By the kind of plan the spec of `parallel`; none where ops cannot be divided."""
    devices, graph = accelerators(problem.cluster), problem.graph
    if why_undivided(problem, devices):
        return {}
    found = dict[str, str]()
    within = math.gcd(*map(len, Servers.of(problem.cluster, devices).devices))
    shards, by = most_columns_and_rows(graph, _divisors(within))
    if any(by) and _divides(graph, len(devices) // shards):
        found[TENSOR_PARALLEL] = f"parallel:tp={shards}"
        if any(along_sequence(graph, shards)):
            found["sequence parallel"] = f"parallel:tp={shards},sequence=true"
    replicas = next((count for count in _divisors(len(devices)) if _divides(graph, count)), 1)
    parts = len(devices) // replicas
    if parts > 1 and any(along_sequence(graph, parts)):
        found["context parallel"] = f"parallel:cp={parts}"
    experts = next((count for count in _divisors(replicas) if any(along_experts(graph, count))), 1)
    if experts > 1 and replicas == len(devices):
        found["expert parallel"] = f"parallel:ep={experts}"
    return found


def _divides(graph: OpGraph, replicas: int) -> bool:
    """Whether a step's samples can be divided so, as far as is known."""
    return most_that_divide(graph, replicas) == replicas


def _divisors(number: int) -> list[int]:
    """The divisors of a number from itself down to 2."""
    return [count for count in range(number, 1, -1) if number % count == 0]
