"""METIS: the graph of units cut into one part per device, with little traffic between the parts (Karypis and Kumar).

Vertices weigh what they compute, edges the bytes they carry; a part's target weight is its device's share of the
cluster's speed, so part i belongs to device i. METIS knows neither direction nor time, and its default settings are a
weak rival; here it is run many times and the lowest cut wins, among the partitions whose memory fits. If none fits,
units weigh what they hold in memory instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pymetis

from envs.plan import Plan
from envs.simulator import Simulator
from graphs.errors import InputError
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.searching.held_memory import HeldMemory
from placers.searching.spec import spec_of
from placers.searching.unit_graph import UnitGraph

IMBALANCES = (1, 10, 30, 100)  # thousandths by which a part may outweigh its target; METIS defaults to 1 or 30
VERTEX_SCALE = 1e6  # total of the integer vertex weights
EDGE_SCALE = 1e8  # total of the integer edge weights, but for those raised to 1


@dataclass(frozen=True)
class Metis:
    """The lowest cut of many METIS runs that fits the memory."""

    seeds: int = 50
    """How many runs: each with a seed of its own, recursive and k-way and the allowed imbalances in turn."""
    balance: str = "compute"
    """What parts balance: "compute", or "memory" if no partition balanced by compute fits; "memory" alone."""
    default: bool = False
    """One run with METIS's default settings and equal parts, blind to memory, as papers have used it."""

    def __post_init__(self) -> None:
        if self.balance not in ("compute", "memory"):
            raise InputError(f"metis: balance is {self.balance!r}; expected 'compute' or 'memory'")
        if self.seeds < 1:
            raise InputError(f"metis: seeds is {self.seeds}; expected a number >= 1")

    @property
    def name(self) -> str:
        """Its spec."""
        return spec_of("metis", self)

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> Plan:
        """With a budget of one, the lowest cut whose estimated memory fits; else the best of the `budget` lowest."""
        simulator = Simulator(problem)
        units = UnitGraph.of(problem, simulator.costs)
        if self.default:
            placement = _partition(units, _shares(units.seconds))
        else:
            placement = self._tuned(simulator, units, seed, budget)
        return Plan.of_units(problem, placement, placer=self.name, seed=seed, simulations=simulator.simulations)

    def _tuned(self, simulator: Simulator, units: UnitGraph, seed: int, budget: int) -> Ints:
        held = HeldMemory.of(simulator.problem)
        speeds = 1.0 / np.maximum(units.seconds.sum(axis=0), 1e-30)
        by_compute = (_shares(units.seconds), speeds / speeds.sum())
        by_memory = (_shares(held.per_unit[:, None]), held.shares)
        for weights, targets in [by_compute, by_memory] if self.balance == "compute" else [by_memory]:
            found = self._lowest_cuts(units, held, weights, targets, seed)
            placement: Ints = found[0]
            fits = held.overflow(placement) == 0
            if (left := budget - simulator.simulations) > 1:
                outcomes = simulator.run_batch(found[:left])
                placement, fits = found[outcomes.best()], bool(outcomes.fits.any())
            if fits:
                break
        return placement

    def _lowest_cuts(self, units: UnitGraph, held: HeldMemory, weights: Floats, targets: Floats, seed: int) -> Ints:
        """(partitions, units) distinct partitions: those that fit and are balanced first, then by increasing cut."""
        runs = (_settings(i, self.seeds * seed + i) for i in range(self.seeds))
        found = np.unique([_partition(units, weights, targets, *run) for run in runs], axis=0)
        keys = [(held.overflow(parts), not _balanced(parts, weights, targets), cut(units, parts)) for parts in found]
        order = sorted(range(len(found)), key=keys.__getitem__)
        return np.array(found[order], np.int64)


def build(*, seeds: int = 50, balance: str = "compute", default: bool = False) -> Metis:
    """METIS with the given knobs; Metis describes them."""
    return Metis(seeds, balance, default)


def cut(units: UnitGraph, placement: Ints) -> float:
    """Bytes on links between units of different devices."""
    ends = placement[units.links]
    return float(units.link_bytes[ends[:, 0] != ends[:, 1]].sum())


def _settings(run: int, seed: int) -> tuple[bool, pymetis.Options]:
    """Whether a run bisects recursively, and its other settings: all combinations in turn."""
    imbalance = IMBALANCES[run // 2 % len(IMBALANCES)]
    return run % 2 == 0, pymetis.Options(seed=seed, ufactor=imbalance)


def _partition(
    units: UnitGraph,
    weights: Floats,
    targets: Floats | None = None,
    recursive: bool | None = None,
    options: pymetis.Options | None = None,
) -> Ints:
    """(units,) parts found by one METIS run, which decides itself on what is not given."""
    offsets, neighbours, links = units.neighbours
    edge_weights = np.rint(_shares(units.link_bytes[:, None]) * EDGE_SCALE).astype(np.int64)
    result = pymetis.part_graph(
        units.seconds.shape[1],
        pymetis.CSRAdjacency(offsets, neighbours),
        vweights=np.rint(weights * VERTEX_SCALE).astype(np.int64),
        eweights=np.maximum(edge_weights, 1)[links],
        tpwgts=None if targets is None else targets.tolist(),
        recursive=recursive,
        options=options,
    )
    return np.array(result.vertex_part, np.int64)


def _shares(values: Floats) -> Floats:
    """(rows,) mean over columns of each row's share of the column's total."""
    shares: Floats = (values / np.maximum(values.sum(axis=0), 1e-30)).mean(axis=1)
    return shares


def _balanced(parts: Ints, weights: Floats, targets: Floats) -> bool:
    """Whether no part outweighs its target by more than the allowed imbalance and one unit."""
    loads = np.bincount(parts, weights=weights, minlength=len(targets))
    return bool((loads <= targets * (1 + max(IMBALANCES) / 1000) + weights.max()).all())
