"""Annealing with and without the order, at equal simulations."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from envs.costs.costs import AUTO, timed
from evaluation.commands.load_placer import load_placer
from evaluation.simulated_plan import SimulatedPlan
from evaluation.studies.problems import tied
from graphs.load import load_cluster
from graphs.problem import DEFAULT_ORDER, FIFO, Problem

JOINT, ALONE, UNDER_FIFO = "placement and order", "placement alone", "placement alone, fifo"
SEARCHES = {  # the placer, and the rule of its problem
    JOINT: ("annealing", DEFAULT_ORDER),
    ALONE: ("annealing:order=false", DEFAULT_ORDER),
    UNDER_FIFO: ("annealing:order=false", FIFO),
}


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one search found."""

    what: str  # of SEARCHES
    seed: int
    seconds: float  # of a step
    fits: bool


class Searched(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All searches of a problem with one budget."""

    problem: str
    budget: int
    found: tuple[Search, ...]


def searched(graph: str, cluster: str, groups: int, budget: int, seeds: int) -> Searched:
    """All searches of a problem, by the specs of its graph and cluster."""
    return searches(Problem(tied(graph, groups), load_cluster(cluster)), budget, seeds)


def searches(problem: Problem, budget: int, seeds: int) -> Searched:
    """All searches of a problem."""
    problem = timed(problem, AUTO)
    found = []
    for what, (spec, rule) in SEARCHES.items():
        for seed in range(seeds):
            placed = SimulatedPlan.by(load_placer(spec), replace(problem, order=rule), seed=seed, budget=budget)
            timeline = placed.timeline
            found.append(Search(what=what, seed=seed, seconds=timeline.step_seconds, fits=timeline.fits))
    return Searched(problem=problem.name, budget=budget, found=tuple(found))
