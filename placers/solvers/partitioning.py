"""Partitioning: one part of the unit graph per device, and of many partitions the lowest cut that fits the memory.

METIS and KaHIP share this. Parts balance what units compute; if no such partition fits, the mean of that and of what
they hold in memory, as shares of the whole; then memory alone; and then partitions are repaired.

Estimates decide what fits. Where placements may be simulated, a partition that turns out not to fit is repaired at
once.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from envs.costs.costs import unit_seconds
from envs.objectives import Evaluator, evaluator_of
from envs.plans.placer_result import PlacerResult
from envs.simulation.held_memory import HeldMemory
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints
from graphs.op_groups.units import Units
from graphs.problem import Problem
from placers.solvers.repair import repaired

BALANCES = ("compute", "both", "memory")  # tried in this order
LARGEST_IMBALANCE = 0.1  # by which a part of a balanced partition may outweigh its target
VERTEX_SCALE = 1e6  # total of the integer vertex weights
EDGE_SCALE = 1e8  # total of the integer edge weights, but for those raised to 1


class Partitioner(Named, ABC):
    """A placer that takes the lowest cut of several runs; these are knobs of all such placers."""

    seeds: int  # how many runs
    balance: str  # what parts balance first
    repair: bool  # whether units are moved off overfull devices if no partition fits

    def __post_init__(self) -> None:
        placer = type(self).__module__.rpartition(".")[2]
        if self.balance not in BALANCES:
            raise InputError(f"{placer}: balance is {self.balance!r}; expected 'compute', 'both' or 'memory'")
        if self.seeds < 1:
            raise InputError(f"{placer}: seeds is {self.seeds}; expected a number >= 1")

    @abstractmethod
    def partition(self, units: Units, weights: Floats, targets: Floats, run: int, seed: int) -> Ints:
        """(units,) parts of a numbered run, from weights (units,) and targets (devices,), shares that sum to 1 each."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """With a budget of one, the lowest cut whose estimated memory fits; else the best of the lowest cuts."""
        evaluator = evaluator_of(problem)
        placement = _Partitioning(self, evaluator, HeldMemory.of(problem), seed, budget).placement()
        return PlacerResult.of_units(problem, placement, self.name, seed, simulations=evaluator.simulations)


@dataclass(frozen=True, eq=False)
class _Partitioning:
    """A search for the lowest cut that fits."""

    placer: Partitioner
    evaluator: Evaluator
    held: HeldMemory
    seed: int
    budget: int  # placements that may be simulated

    def placement(self) -> Ints:
        """(units,) what `Partitioner.place` returns."""
        held, repair, tried = self.held, self.placer.repair, []
        seconds = unit_seconds(self.evaluator.problem)
        for balance in BALANCES[BALANCES.index(self.placer.balance) :]:
            found = self._lowest_cuts(*weights_and_targets(seconds, held, balance))
            placement: Ints = found[0]
            fits = held.overflow(placement) == 0
            if self._left > 1 and (fits or not repair):
                placement, fits = self._fastest(found[: self._left])
                if repair and not fits:
                    placement, fits = self._repaired([placement], self._left // 2)
            if fits:
                return placement
            tried.append(placement)
        return self._repaired(tried, self._left)[0] if repair else placement

    def _lowest_cuts(self, weights: Floats, targets: Floats) -> Ints:
        """(partitions, units) distinct partitions: those that fit and are balanced first, then by increasing cut."""
        problem, placer = self.evaluator.problem, self.placer
        parts = [
            placer.partition(problem.units, weights, targets, run, placer.seeds * self.seed + run)
            for run in range(placer.seeds)
        ]
        found = np.unique(problem.made_allowed(np.array(parts)), axis=0)
        keys = [
            (self.held.overflow(each), not _balanced(each, weights, targets), cut(problem.units, each))
            for each in found
        ]
        partitions: Ints = found[sorted(range(len(found)), key=keys.__getitem__)].astype(np.int64)
        return partitions

    def _fastest(self, found: Ints) -> tuple[Ints, bool]:
        """The best of the partitions, and whether it fits. If none of the first half does, the rest are skipped."""
        fastest, least = found[0], (True, np.inf)
        for part in np.array_split(found, min(2, len(found))):
            outcomes = self.evaluator.run_batch(part)
            best = outcomes.best()
            result = not outcomes.fits[best], float(outcomes.step_seconds[best])
            if result < least:
                fastest, least = part[best], result
            if least[0]:
                break
        return fastest, not least[0]

    def _repaired(self, tried: list[Ints], simulations: int) -> tuple[Ints, bool]:
        """Of the repaired partitions that fit, by estimate, the lowest cut; and whether a simulation says so too.

        One that turns out not to fit is repaired again, as often as may be simulated, with less memory to fill: less by
        what its devices held for a short while, which the estimate leaves out.
        """
        problem, held, to_fill = self.evaluator.problem, self.held, self.held
        while True:
            candidates = [repaired(problem.units, to_fill, parts, problem.allowed) for parts in tried]
            keys = [(to_fill.overflow(parts), cut(problem.units, parts)) for parts in candidates]
            placement = candidates[min(range(len(keys)), key=keys.__getitem__)]
            if self.budget <= 1 or simulations < 1:
                return placement, False
            outcomes = self.evaluator.run_batch(placement[None])
            simulations -= 1
            short_lived = np.maximum(outcomes.peak_bytes[0] - held.on_devices(placement), 0.0)
            limits = np.minimum(to_fill.limits, held.limits - short_lived)
            if outcomes.fits[0] or (limits == to_fill.limits).all():
                return placement, bool(outcomes.fits[0])
            to_fill = replace(to_fill, limits=limits)

    @property
    def _left(self) -> int:
        return self.budget - self.evaluator.simulations


def weights_and_targets(seconds: Floats, held: HeldMemory, balance: str) -> tuple[Floats, Floats]:
    """Weights (units,) of units that take `seconds`, (units, devices), and targets (devices,) of parts, as shares."""
    speeds = 1.0 / np.maximum(seconds.sum(axis=0), 1e-30)
    compute = shares(seconds), speeds / speeds.sum()
    memory = shares(held.per_unit[:, None]), held.shares
    if balance == "both":
        return (compute[0] + memory[0]) / 2, (compute[1] + memory[1]) / 2
    return compute if balance == "compute" else memory


def shares(values: Floats) -> Floats:
    """(rows,) mean over columns of each row's share of the column's total."""
    found: Floats = (values / np.maximum(values.sum(axis=0), 1e-30)).mean(axis=1)
    return found


def vertex_weights(values: Floats) -> Ints:
    """(values,) integers from shares of a whole."""
    return np.rint(values * VERTEX_SCALE).astype(np.int64)


def edge_weights(units: Units) -> Ints:
    """(links,) integers from the bytes that each link carries, 1 at least."""
    rounded: Ints = np.maximum(np.rint(shares(units.link_bytes[:, None]) * EDGE_SCALE).astype(np.int64), 1)
    return rounded


def cut(units: Units, placement: Ints) -> float:
    """Bytes on links between units of different devices."""
    ends = placement[units.links]
    return float(units.link_bytes[ends[:, 0] != ends[:, 1]].sum())


def _balanced(parts: Ints, weights: Floats, targets: Floats) -> bool:
    """Whether no part outweighs its target by more than the allowed imbalance and one unit."""
    loads = np.bincount(parts, weights=weights, minlength=len(targets))
    return bool((loads <= targets * (1 + LARGEST_IMBALANCE) + weights.max()).all())
