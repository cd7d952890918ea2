"""Tofu (Wang, Huang and Li 2019): every op and tensor divided over all devices, with the fewest bytes moved.

Devices are halved again and again. For each cut a search finds the index that each op divides, and the dimension that
each tensor does, so that the fewest bytes pass, given the cuts before. Nothing is whole on every device. Gradients
divide as their forward ops do, and time steps of recurrent networks alike. Links and seconds of computing do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from envs.placer_result import PlacerResult
from graphs.foundation.by_name import Named
from graphs.problem import Problem
from placers.splitting.cuts import recursive
from placers.splitting.described_step import plan_of, split_graph_of
from placers.splitting.mesh import best_mesh
from placers.splitting.options import TOFU, Splitting
from placers.splitting.pricing import Prices, Pricing
from placers.splitting.undivided import first_devices, on_one_device, why_undivided

BY_REQUEST = True  # it goes by what a paper knows, and takes seconds on large models
RULES = replace(TOFU, statistics=False)  # as plans are checked


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
        devices = first_devices(problem, "tofu", self.devices)
        if reason := why_undivided(problem, devices):
            return on_one_device(problem, reason, self.name, seed, budget)
        mesh = best_mesh(problem.cluster, devices)
        splitting = Splitting(split_graph_of(problem), mesh, RULES)
        limit = float(problem.cluster.memory_bytes[list(devices)].min())
        cuts = recursive(Pricing(splitting, Prices.bytes(len(mesh))), limit)
        note = (
            f"tofu: cuts over a mesh of {' x '.join(map(str, mesh))} devices, estimated to move {cuts.cost:.6g} bytes "
            f"in a step{'' if cuts.fits else '; no cuts were found that fit the memory'}."
        )
        return PlacerResult(plan_of(splitting, cuts, devices), self.name, seed, notes=(note,))


build = Tofu
