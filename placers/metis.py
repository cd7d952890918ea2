"""METIS: the graph of units cut into one part per device, with little traffic between the parts (Karypis and Kumar).

Vertices weigh what they compute, edges the bytes they carry; a part's target weight is its device's share of the
cluster's speed, so part i belongs to device i. METIS knows neither direction nor time, and its default settings are a
weak rival; here it is run many times and the lowest cut wins, among the partitions whose memory fits. If none fits,
units weigh what they hold in memory as well, then only that, and then units are moved off overfull devices. METIS
itself can balance two weights at a time, but its Python interface takes one: "both" is their mean.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pymetis

from envs.costs.costs import unit_seconds
from envs.plans.placer_result import PlacerResult
from graphs.op_graph import Floats, Ints
from graphs.op_groups.units import Units
from graphs.problem import Problem
from placers.solvers.partitioning import Partitioner, edge_weights, shares, vertex_weights

IMBALANCES = (1, 10, 30, 100)  # thousandths by which a part may outweigh its target; METIS defaults to 1 or 30
_C = ctypes.CDLL(None)


@dataclass(frozen=True)
class Metis(Partitioner):
    """The lowest cut of many METIS runs that fits the memory."""

    seeds: int = 50
    """How many runs: each with a seed of its own; recursive and k-way, and the allowed imbalances, alternate."""
    balance: str = "compute"
    """What parts balance: "compute", "both" if no partition balanced by compute fits, and then "memory"; or from
    "both" or "memory" on."""
    default: bool = False
    """One run with METIS's default settings and equal parts, blind to memory, as papers have used it."""
    repair: bool = True
    """Whether units are moved off overfull devices if no partition fits."""

    def partition(self, units: Units, weights: Floats, targets: Floats, run: int, seed: int) -> Ints:
        """Every other run bisects recursively; imbalances take turns."""
        options = pymetis.Options(seed=seed, ufactor=IMBALANCES[run // 2 % len(IMBALANCES)])
        return _partition(units, len(targets), weights, targets, run % 2 == 0, options)

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """With a budget of one, the lowest cut whose estimated memory fits; else the best of the lowest cuts.

        With METIS's default settings it is one run, without any simulation.
        """
        if not self.default:
            return super().place(problem, seed=seed, budget=budget)
        placement = _partition(problem.units, len(problem.cluster), shares(unit_seconds(problem)))
        return PlacerResult.of_units(problem, placement, self.name, seed)


build = Metis


def _partition(
    units: Units, devices: int, weights: Floats, targets: Floats | None = None, recursive: bool | None = None,
    options: pymetis.Options | None = None,
) -> Ints:  # fmt: skip
    """(units,) parts found by one METIS run, which decides itself on what is not given."""
    offsets, neighbours, links = units.neighbours
    with quiet():  # METIS complains of parts that it leaves empty
        result = pymetis.part_graph(
            devices, pymetis.CSRAdjacency(offsets, neighbours),
            vweights=vertex_weights(weights), eweights=edge_weights(units)[links],
            tpwgts=None if targets is None else targets.tolist(), recursive=recursive, options=options,
        )  # fmt: skip
    return np.array(result.vertex_part, np.int64)


@contextmanager
def quiet() -> Iterator[None]:
    """Discard what C code, or another thread, prints to standard output meanwhile: programs may read that."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        _C.fflush(None)  # C has a buffer of its own, which would be written later
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
