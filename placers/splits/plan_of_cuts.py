"""A plan of cuts: what placers have in common that search for the index by which every op is divided."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from envs.costs.costs import costs_of
from envs.expansion.layout import Layout
from envs.expansion.shards.shards import Partition, least_shares
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from graphs.foundation.by_name import Named
from graphs.problem import Problem
from placers.splits.cuts import SplitAssignment
from placers.splits.described_step import plan_of, split_graph_of
from placers.splits.mesh import best_mesh, prices_of_links
from placers.splits.options import SplitRules, Splitting
from placers.splits.pricing import Prices
from placers.splits.undivided import first_devices, on_one_device, why_undivided


@dataclass(frozen=True)
class CutsPlacer(Named, ABC):
    """A placer of the cuts that a search of its own finds, without any simulation."""

    divides_batch: ClassVar[bool] = True
    rules: ClassVar[SplitRules] = SplitRules()

    devices: int = 0
    """How many devices, the first ones; 0 for all. CPUs are used only if there is nothing else."""

    @abstractmethod
    def search(self, splitting: Splitting, links: Prices, limit: float) -> tuple[SplitAssignment, str]:
        """Cuts, within `limit` bytes on a device if there are any, and what a note says of them.

        `links` are the seconds that bytes take along each axis of the mesh.
        """

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The plan of the cuts, within the memory of the smallest device if the search finds a way.

        All on one device if nothing can be divided, which a note says. Raises InputError for more devices than there
        are, and for graphs in which too many choices depend on each other.
        """
        word = self.name.partition(":")[0]
        several = first_devices(problem, word, self.devices)
        if reason := why_undivided(problem, several):
            return on_one_device(problem, reason, self.name, seed, budget)
        mesh = best_mesh(problem.cluster, several)
        splitting = Splitting(split_graph_of(problem), mesh, self.rules)
        limit = float(problem.cluster.memory_bytes[list(several)].min())
        cuts, note = self.search(splitting, prices_of_links(problem.cluster, several, mesh), limit)
        plan = plan_of(splitting, cuts, several)
        lacking = "" if cuts.fits else "; no way was found that fits the memory"
        lacking += "" if _divides(problem, plan) else "; no op is divided: each device computes all of them"
        note = f"{word}: ops are divided over a mesh of {' x '.join(map(str, mesh))} devices{note}{lacking}."
        return PlacerResult(plan, self.name, seed, notes=(note,))


def _divides(problem: Problem, plan: Plan) -> bool:
    """Whether devices compute parts of some op that takes time."""
    takes_time = costs_of(problem).op_seconds.max(axis=1) > 0
    return bool((least_shares(Partition(Layout(problem, plan)))[takes_time] < 1).any())
