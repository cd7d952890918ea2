"""OptCNN (Jia, Lin, Qi and Aiken 2018): for each layer the way of dividing it with which a step takes least.

Each op with its gradients is a layer, which may divide any of its indices over the axes of the devices. What counts is
seconds of computing and of moving, one after the other. The best choice is found by OptCNN's eliminations of nodes and
edges; where these leave too many nodes, by bucket elimination, which is exact as well; where its tables would be too
large, axis by axis. A note says which it was.
"""

from dataclasses import dataclass

import numpy as np

from graphs.foundation.errors import InputError
from placers.splits.bucket_elimination import least
from placers.splits.cuts import MOST_OPERATIONS, SplitAssignment, joint, operations_of_joint, searched
from placers.splits.layer_costs import least_of_layers
from placers.splits.options import Splitting
from placers.splits.pairwise_costs import Assignment, PairwiseCosts
from placers.splits.plan_of_cuts import CutsPlacer
from placers.splits.pricing import Prices, Pricing

BY_REQUEST = True  # it goes by what a paper knows, and takes seconds on large models


@dataclass(frozen=True)
class OptCNN(CutsPlacer):
    """Cuts along all axes at once, of least seconds."""

    def search(self, splitting: Splitting, links: Prices, limit: float) -> tuple[SplitAssignment, str]:
        """Of least seconds, over all axes at once where that can be."""
        cuts, how = _searched(Pricing(splitting, links), limit)
        return cuts, f" by {how}, estimated to take {cuts.cost:.6g} s in a step"


build = OptCNN


def _searched(pricing: Pricing, limit: float) -> tuple[SplitAssignment, str]:
    """Cuts, and how they were found."""
    if operations_of_joint(pricing) > MOST_OPERATIONS:
        found = searched(pricing, limit, most_operations=-np.inf)
        return found, "bucket elimination axis by axis, since the tables of all axes at once would be too large"
    solve = _LeastOfLayers()
    found = joint(pricing, limit, solve)
    if solve.leaves_too_many:
        return found, "bucket elimination, since those of OptCNN leave too many nodes"
    return found, "eliminations of nodes and edges"


@dataclass
class _LeastOfLayers:
    """OptCNN's eliminations or, once these have left too many nodes, bucket elimination."""

    leaves_too_many: bool = False

    def __call__(self, costs: PairwiseCosts) -> Assignment:
        if not self.leaves_too_many:
            try:
                return least_of_layers(costs)
            except InputError:
                self.leaves_too_many = True
        return least(costs)
