"""A plan of cuts: what placers have in common that search for the index by which every op is divided."""

from collections.abc import Callable

from envs.costs.costs import costs_of
from envs.expansion.layout import Layout
from envs.expansion.shards.shards import Partition, least_shares
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from graphs.foundation.by_name import Named
from graphs.problem import Problem
from placers.splits.cuts import SplitAssignment
from placers.splits.described_step import plan_of, split_graph_of
from placers.splits.mesh import best_mesh
from placers.splits.options import SplitRules, Splitting
from placers.splits.undivided import first_devices, on_one_device, why_undivided

Search = Callable[
    [Splitting, tuple[int, ...], float], tuple[SplitAssignment, str]
]  # on devices, within bytes: cuts, their note


def place_cuts(
    placer: Named, problem: Problem, devices: int, search: Search, *, rules: SplitRules, seed: int, budget: int
) -> PlacerResult:
    """The plan of the cuts that a search finds, within the memory of the smallest device, on `devices` devices; 0: all.

    All on one device if nothing can be divided, which a note says. Raises InputError for more devices than there are.
    """
    word = placer.name.partition(":")[0]
    several = first_devices(problem, word, devices)
    if reason := why_undivided(problem, several):
        return on_one_device(problem, reason, placer.name, seed, budget)
    mesh = best_mesh(problem.cluster, several)
    splitting = Splitting(split_graph_of(problem), mesh, rules)
    limit = float(problem.cluster.memory_bytes[list(several)].min())
    cuts, note = search(splitting, several, limit)
    plan = plan_of(splitting, cuts, several)
    lacking = "" if cuts.fits else "; no cuts were found that fit the memory"
    lacking += "" if _divides(problem, plan) else "; no op is divided: each device computes all of them"
    note = f"{word}: cuts over a mesh of {' x '.join(map(str, mesh))} devices{note}{lacking}."
    return PlacerResult(plan, placer.name, seed, notes=(note,))


def _divides(problem: Problem, plan: Plan) -> bool:
    """Whether devices compute parts of some op that takes time."""
    takes_time = costs_of(problem).op_seconds.max(axis=1) > 0
    return bool((least_shares(Partition(Layout(problem, plan)))[takes_time] < 1).any())
