"""OptCNN (Jia, Lin, Qi and Aiken 2018): for each layer the way of dividing it with which a step takes least.

Each op with its gradients is a layer, which may divide any of its indices over the axes of the devices. What counts is
seconds of computing and of moving, one after the other. The best choice is found by OptCNN's eliminations of nodes and
edges; where these leave too many nodes, by bucket elimination, which is exact as well; where its tables would be too
large, axis by axis. A note says which it was.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from envs.plans.placer_result import PlacerResult
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.splits.cuts import MOST_OPERATIONS, SplitAssignment, joint, operations_of_joint, searched
from placers.splits.layer_costs import least_of_layers
from placers.splits.mesh import prices_of_links
from placers.splits.options import SplitRules, Splitting
from placers.splits.plan_of_cuts import place_cuts
from placers.splits.pricing import Pricing

BY_REQUEST = True  # it goes by what a paper knows, and takes seconds on large models


@dataclass(frozen=True)
class OptCNN(Named):
    """Cuts along all axes at once, of least seconds."""

    divides_batch: ClassVar[bool] = True

    devices: int = 0
    """How many devices, the first ones; 0 for all. CPUs are used only if there is nothing else."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """Without any simulation, within the memory of the smallest device if the search finds a way.

        All on one device if nothing can be divided, which a note says. Raises InputError for more devices than there
        are, and for graphs in which too many choices depend on each other.
        """

        def search(splitting: Splitting, devices: tuple[int, ...], limit: float) -> tuple[SplitAssignment, str]:
            prices = prices_of_links(problem.cluster, devices, splitting.mesh)
            cuts, how = _searched(Pricing(splitting, prices), limit)
            return cuts, f" by {how}, estimated to take {cuts.cost:.6g} s"

        return place_cuts(self, problem, self.devices, search, rules=SplitRules(), seed=seed, budget=budget)


build = OptCNN


def _searched(pricing: Pricing, limit: float) -> tuple[SplitAssignment, str]:
    """Cuts, and how they were found."""
    if operations_of_joint(pricing) > MOST_OPERATIONS:
        found = searched(pricing, limit, most_operations=-np.inf)
        return found, "bucket elimination axis by axis, since the tables of all axes at once would be too large"
    try:
        return joint(pricing, limit, least_of_layers), "eliminations of nodes and edges"
    except InputError:
        return joint(pricing, limit), "bucket elimination, since those of OptCNN leave too many nodes"
