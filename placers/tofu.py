"""Tofu (Wang, Huang and Li 2019): every op and tensor divided over all devices, with the fewest bytes moved.

Devices are halved again and again. For each cut a search finds the index that each op divides, and the dimension that
each tensor does, so that the fewest bytes pass, given the cuts before. Nothing is whole on every device. Gradients
divide as their forward ops do, and time steps of recurrent networks alike. Links and seconds of computing do not count.
"""

from dataclasses import dataclass
from typing import ClassVar

from envs.plans.placer_result import PlacerResult
from graphs.foundation.by_name import Named
from graphs.foundation.quantities import binary_unit
from graphs.problem import Problem
from placers.splits.cuts import SplitAssignment, recursive
from placers.splits.options import TOFU, Splitting
from placers.splits.plan_of_cuts import place_cuts
from placers.splits.pricing import Prices, Pricing

BY_REQUEST = True  # it goes by what a paper knows, and takes seconds on large models


@dataclass(frozen=True)
class Tofu(Named):
    """Recursive cuts of least bytes."""

    divides_batch: ClassVar[bool] = True

    devices: int = 0
    """How many devices, the first ones; 0 for all. CPUs are used only if there is nothing else."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """Without any simulation, within the memory of the smallest device if the search finds a way.

        All on one device if nothing can be divided, which a note says. Raises InputError for more devices than there
        are, and for graphs in which too many choices depend on each other.
        """

        def search(splitting: Splitting, devices: tuple[int, ...], limit: float) -> tuple[SplitAssignment, str]:  # noqa: ARG001
            cuts = recursive(Pricing(splitting, Prices.bytes(len(splitting.mesh))), limit)
            size, unit = binary_unit(cuts.cost)
            return cuts, f", estimated to move {cuts.cost / size:.6g} {unit} in a step"

        return place_cuts(self, problem, self.devices, search, rules=TOFU, seed=seed, budget=budget)


build = Tofu
