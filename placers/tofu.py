"""Tofu (Wang, Huang and Li 2019): every op and tensor divided over all devices, with the fewest bytes moved.

Devices are halved again and again. For each cut a search finds the index that each op divides, and the dimension that
each tensor does, so that the fewest bytes pass, given the cuts before. Nothing is whole on every device. Gradients
divide as their forward ops do, and time steps of recurrent networks alike. Links and seconds of computing do not count.
"""

from dataclasses import dataclass

from graphs.foundation.quantities import binary_unit
from placers.splits.cuts import SplitAssignment, recursive
from placers.splits.options import TOFU, Splitting
from placers.splits.plan_of_cuts import CutsPlacer
from placers.splits.pricing import Prices, Pricing

BY_REQUEST = True  # it goes by what a paper knows, and takes seconds on large models


@dataclass(frozen=True)
class Tofu(CutsPlacer):
    """Recursive cuts of least bytes."""

    rules = TOFU

    def search(self, splitting: Splitting, links: Prices, limit: float) -> tuple[SplitAssignment, str]:  # noqa: ARG002
        """With the fewest bytes, cut by cut."""
        cuts = recursive(Pricing(splitting, Prices.bytes(len(splitting.mesh))), limit)
        size, unit = binary_unit(cuts.cost)
        return cuts, f", estimated to move {cuts.cost / size:.6g} {unit} in a step"


build = Tofu
