"""Latency: how long one forward pass takes, from its first op until the last one has ended.

Of a placement that is the forward pass of the whole batch: its forward ops alone, on devices with nothing else to do.
Of a plan in micro-batches it is the time until the first of them has left the last stage: its forward ops, on all
replicas, and whatever these wait for, such as passes that come before on the same device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from envs.expansion.expand import expand
from envs.expansion.expanded import Expansion, Role
from envs.plans.plan import Plan
from envs.simulation.simulator import Outcomes, Placements, Simulator
from graphs.op_graph import Bools, Floats, Ints, OpGraph, Phase
from graphs.op_graph.subgraph import subgraph
from graphs.problem import Problem


@dataclass(frozen=True)
class Latency:
    """The seconds of a forward pass alone."""

    def evaluator(self, problem: Problem) -> ForwardPass:
        """Its seconds. Raises InputError for a graph without forward ops."""
        return ForwardPass(problem)

    def of_plan(self, problem: Problem, plan: Plan) -> float:
        """Seconds until the first micro-batch has passed through a plan, under its own order."""
        plan.check(problem)
        if plan.is_placement:
            kept = problem.graph.phase == Phase.FORWARD
            order = np.array(plan.order)[kept] if isinstance(plan.order, tuple) else plan.order
            alone = Simulator(_part(problem, kept), order=order)
            return float(alone.seconds(plan.placement[kept][_first_ops(alone.problem.graph)][None])[0])
        return self.of_expansion(expand(problem, plan))

    def of_expansion(self, expansion: Expansion) -> float:
        """The same of a plan that is written out."""
        kept, order = _first_pass(expansion), expansion.order
        part = _part(expansion.problem, kept)
        alone = Simulator(part, order=order[kept] if isinstance(order, np.ndarray) else order)
        return float(alone.seconds(expansion.placement[kept][None])[0])


class ForwardPass:
    """Evaluates placements by the seconds of their forward ops; what memory they take is that of a whole step."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.simulations = 0
        kept = problem.graph.phase == Phase.FORWARD
        self._step = Simulator(problem)
        self._alone = Simulator(_part(problem, kept))
        # (units of the forward pass,) the unit of the whole graph that each is a part of
        self._unit = problem.graph.units[kept][_first_ops(self._alone.problem.graph)]

    def run_batch(self, placements: Placements, *, threads: int = 1) -> Outcomes:
        """(plans,) seconds of each of (plans, units) placements, and the memory that a simulated step takes."""
        outcomes = self._step.run_batch(placements, threads=threads)
        return replace(outcomes, step_seconds=self.seconds(placements, threads=threads))

    def seconds(self, placements: Placements, *, threads: int = 1) -> Floats:
        """(plans,) seconds of the forward pass of each of (plans, units) placements."""
        checked = self._step.checked(placements)
        self.simulations += len(checked)
        return self._alone.seconds(np.ascontiguousarray(checked[:, self._unit]), threads=threads)


def _part(problem: Problem, kept: Bools) -> Problem:
    """The problem of some of the ops, (ops,)."""
    seconds = None if problem.op_seconds is None else problem.op_seconds[kept]
    pace = problem.pace[kept] if len(problem.pace) else problem.pace
    collectives = problem.collectives and problem.collectives.of(kept)
    graph = subgraph(problem.graph, kept)
    return replace(problem, graph=graph, op_seconds=seconds, pace=pace, collectives=collectives)


def _first_ops(graph: OpGraph) -> Ints:
    """(units,) the first op of each unit."""
    return np.unique(graph.units, return_index=True)[1]


def _first_pass(expansion: Expansion) -> Bools:
    """(expanded ops,) the forward ops of the first micro-batch, and all that they wait for."""
    graph = expansion.problem.graph
    found: Bools = (graph.phase == Phase.FORWARD) & (expansion.micro_batch == 0) & (expansion.role == Role.WORK)
    offsets, in_edges = (each.tolist() for each in graph.predecessors)
    producers = graph.edges[:, 0].tolist()
    stack = np.flatnonzero(found).tolist()
    while stack:
        op = stack.pop()
        for edge in in_edges[offsets[op] : offsets[op + 1]]:
            if not found[producers[edge]]:
                found[producers[edge]] = True
                stack.append(producers[edge])
    return found


build = Latency
