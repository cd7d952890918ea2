"""Whole plans: what placers have in common that decide more than a device for each op."""

from typing import Protocol, runtime_checkable

import numpy as np

from envs.objectives import is_pipelined
from envs.plans.plan import Plan
from envs.plans.schedule import Shares
from graphs.cluster import Cluster
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem


@runtime_checkable
class Proposes(Protocol):
    """A placer that makes whole plans without any simulation, for a search to begin with."""

    def proposals(self, problem: Problem, count: int, seed: int) -> list[Plan]:
        """At most `count` plans, those that promise most first; equal seeds give equal plans."""
        ...


def why_placements_only(problem: Problem) -> str:
    """The reason why only op placements make sense for a problem; empty if there is none."""
    if is_pipelined(problem):
        return f"the objective '{problem.objective}' is about samples that follow one another anyway"
    if problem.allowed is not None:
        bound = next(op for op, names in enumerate(problem.graph.devices) if names)
        names = ", ".join(problem.graph.devices[bound])
        return f"op {problem.graph.names[bound]!r} may only run on {names}"
    return ""


def accelerators(cluster: Cluster) -> tuple[int, ...]:
    """The devices that are no CPUs, or all if there are only CPUs: a CPU would hold up all others."""
    return tuple(np.flatnonzero(cluster.is_cpu if cluster.is_cpu.all() else ~cluster.is_cpu).tolist())


def most_that_divide(graph: OpGraph, most: int, others: int = 1) -> int:
    """At most `most` equal parts, each of `others` parts, that a step's samples can be divided into; at least 1.

    That is `most` where it is not known how many samples a step has.
    """
    if not graph.samples:
        return most
    return next((parts for parts in range(most, 1, -1) if graph.samples % (parts * others) == 0), 1)


def check_divides(graph: OpGraph, placer: str, micro_batches: int, replicas: int, shares: Shares = ()) -> None:
    """Raise InputError if it is known that a step's samples cannot be divided so, in `shares` if there are any."""
    parts = sum(shares) or replicas
    if graph.samples % (micro_batches * parts):
        each = (
            f"of {parts} parts, the shares {':'.join(map(str, shares))}"
            if shares
            else f"on {replicas} replica{'s' * (replicas > 1)}"
        )
        raise InputError(
            f"{placer}: a step of {graph.name!r} has {graph.samples} samples, which cannot be divided into "
            f"{micro_batches} micro-batch{'es' * (micro_batches > 1)} {each}; choose numbers whose product divides "
            f"{graph.samples}, or another `batch`"
        )


def given_shares(placer: str, said: str) -> Shares:
    """The shares of replicas in a spec, such as "3:1". Raises InputError for what are none."""
    found = said.split(":")
    if len(found) < 2 or not all(each.isdecimal() and int(each) for each in found):
        raise InputError(
            f"{placer}: shares={said} says no shares; expected how many parts of the batch each replica takes, as 3:1"
        )
    return tuple(map(int, found))
