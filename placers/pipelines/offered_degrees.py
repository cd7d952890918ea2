"""Degrees that are offered: tensor, sequence, context and expert parallelism as engineers would take them on a cluster.

Each only where it can be: shards within a server, for products that columns and rows divide, and where servers are
unequal, shares of the batch by which all end together; weights in parts over several servers, and shards within
each; parts of the sequence where there are too few samples for all devices; and experts where there are any.
"""

import math

import numpy as np

from envs.expansion.servers import by_server
from envs.pipelines.shares_by_speed import PARTS
from envs.plans.schedule import Shares, least_shares
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.contract.whole_plans import accelerators, most_that_divide
from placers.pipelines.replica_shares import ReplicaCosts, are_alike
from placers.splits.column_row import most_columns_and_rows
from placers.splits.experts import along_experts
from placers.splits.sequences import along_sequence
from placers.splits.undivided import why_undivided

TENSOR_PARALLEL, FULLY_SHARDED = "tensor parallel", "fully sharded and tensor parallel"


def offered_degrees(problem: Problem) -> dict[str, str]:
    """By the kind of plan the spec of `parallel`; none where ops cannot be divided."""
    devices, graph = accelerators(problem.cluster), problem.graph
    if why_undivided(problem, devices):
        return {}
    found = dict[str, str]()
    _, server = by_server(problem.cluster, devices)
    within = math.gcd(*np.bincount(server).tolist())
    shards, by = most_columns_and_rows(graph, _divisors(within))
    shares = _shares(problem, devices, shards) if any(by) else ()
    if any(by) and (shares or _divides(graph, len(devices) // shards)):
        said = f",shares={':'.join(map(str, shares))}" if shares else ""
        found[TENSOR_PARALLEL] = f"parallel:tp={shards}{said}"
        if any(along_sequence(graph, shards)):
            found["sequence parallel"] = f"parallel:tp={shards},sequence=true{said}"
    if any(by) and graph.is_training and server.any() and _divides(graph, len(devices) // shards):
        found[FULLY_SHARDED] = f"fsdp:tp={shards}"
    replicas = next((count for count in _divisors(len(devices)) if _divides(graph, count)), 1)
    parts = len(devices) // replicas
    if parts > 1 and any(along_sequence(graph, parts)):
        found["context parallel"] = f"parallel:cp={parts}"
    experts = next((count for count in _divisors(replicas) if any(along_experts(graph, count))), 1)
    if experts > 1 and replicas == len(devices):
        found["expert parallel"] = f"parallel:ep={experts}"
    return found


def _shares(problem: Problem, devices: tuple[int, ...], shards: int) -> Shares:
    """Those of replicas of so many devices, by which all end together; () if they are equal, or one has no sample."""
    if are_alike(problem, devices):
        return ()
    costs = ReplicaCosts.of(problem, devices, 1 / shards).of_groups(shards)
    found = costs.shares(problem.graph.samples or PARTS, 1)
    return () if 0 in found else least_shares(found)


def _divides(graph: OpGraph, replicas: int) -> bool:
    """Whether a step's samples can be divided so, as far as is known."""
    return most_that_divide(graph, replicas) == replicas


def _divisors(number: int) -> list[int]:
    """The divisors of a number from itself down to 2."""
    return [count for count in range(number, 1, -1) if number % count == 0]
