"""The default of `place` against that of earlier versions: 64 op groups, first come, first served."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache

import msgspec

from envs.costs.costs import AUTO, timed
from envs.robustness import robustness
from envs.simulation.simulator import Simulator
from evaluation.commands.graph_verbs import place
from evaluation.commands.load_placer import load_placer
from evaluation.simulated_plan import SimulatedPlan
from evaluation.studies.order.rules import RULES
from evaluation.studies.problems import captured
from graphs.grouping import tie_ops
from graphs.load import load_cluster
from graphs.op_graph import OpGraph
from graphs.problem import FIFO, Problem

NOW, EARLIER = "now", "earlier"
EARLIER_PLACER, EARLIER_GROUPS = "annealing:policy=default,order=false,levels=false", 64
WARM_UP = (
    "layered:seed=0",
    "p100:devices=2",
    64,
)  # a small problem and simulations: what is loaded once, off the clock


class Placed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one default found."""

    what: str
    seed: int
    seconds: float  # of a step
    fits: bool
    by_rule: dict[str, float]  # seconds of the same placement under each rule, where it fits
    median: float  # under noise (`envs.robustness`)
    worst: float
    free: float  # without noise, on links that do not queue
    cpu_seconds: float  # from the captured graph to the simulated plan
    simulations: int
    units: int


class Defaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Both defaults on a problem with one budget."""

    problem: str
    budget: int
    found: tuple[Placed, ...]


def defaults(graph: str, cluster: str, budget: int, seeds: int) -> Defaults:
    """Both on a problem, by the specs of its graph and cluster."""
    warm_up()
    found = [placed(what, captured(graph), cluster, seed, budget) for seed in range(seeds) for what in (EARLIER, NOW)]
    return Defaults(problem=f"{graph}@{cluster}", budget=budget, found=tuple(found))


def placed(what: str, graph: OpGraph, cluster: str, seed: int, budget: int) -> Placed:
    """One of both. Nothing that one computes of the graph is there for the other."""
    fresh = replace(graph)
    began = time.process_time()
    found = (
        place(fresh, cluster=cluster, budget=budget, seed=seed)
        if what == NOW
        else _placed_earlier(fresh, cluster, seed, budget)
    )
    cpu_seconds = time.process_time() - began
    placement = found.plan.per_unit(found.problem)
    outcomes = {rule: Simulator(found.problem, order=rule).run(placement) for rule in RULES}
    robust = robustness(found.problem, found.plan, seed=seed)
    return Placed(
        what=what, seed=seed, seconds=found.timeline.step_seconds, fits=found.timeline.fits,
        by_rule={rule: outcome.step_seconds for rule, outcome in outcomes.items() if outcome.fits},
        median=robust.median_seconds, worst=robust.worst_seconds, free=robust.free_seconds, cpu_seconds=cpu_seconds,
        simulations=found.result.simulations, units=found.problem.graph.num_units,
    )  # fmt: skip


def _placed_earlier(graph: OpGraph, cluster: str, seed: int, budget: int) -> SimulatedPlan:
    problem = Problem(tie_ops(graph, EARLIER_GROUPS), load_cluster(cluster), order=FIFO)
    return SimulatedPlan.by(load_placer(EARLIER_PLACER), timed(problem, AUTO), seed=seed, budget=budget)


@cache
def warm_up() -> None:
    """Once in a process: compiled code and the policy are loaded."""
    graph, cluster, budget = WARM_UP
    for what in (EARLIER, NOW):
        placed(what, captured(graph), cluster, 0, budget)
