"""A genetic algorithm with biased random keys (Gonçalves and Resende 2011), which others place graphs with, too.

A chromosome has two numbers from 0 to 1 per unit. The place of one among equal intervals is the unit's device. The
other says how much more or less urgent its ops are than by the problem's rule, 1/2 for as urgent (Gonçalves, Mendes and
Resende 2008 make urgency of keys likewise). The best chromosomes of a generation live on, a few are drawn at random,
and each key of the others comes from one of the best, mostly, or else from any. The first generation has the placements
of the cheap placers; without them it starts far behind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.search.evaluations import Evaluations
from placers.search.levels import levels_of
from placers.search.search import SearchPlacer
from placers.search.starts import starts

ELITE = 0.2  # of a generation that lives on
MUTANTS = 0.02  # of a generation that is drawn at random; more than that is lost work on graphs of hundreds of units
SHIFT = 0.3  # of the spread of all priorities, by which a key changes some at most
FLIPPED = 2.0  # keys of a child that are drawn at random, on average: they keep a population from becoming all alike


@dataclass(frozen=True)
class Genetic(SearchPlacer):
    """Generations of placements, the better ones with more children."""

    population: int = 100
    """Placements in a generation."""
    bias: float = 0.7
    """How often a child takes a key from its better parent."""
    order: bool = True
    """Whether it changes the order, too. Under `fifo` there are no priorities to change."""
    seconds: float = float("inf")
    """A limit of processor seconds, in addition to that of simulations."""
    file: str = ""
    """Where to save the search when it ends or is stopped, and to resume it from."""

    def __post_init__(self) -> None:
        if self.population < 5:
            raise InputError(f"genetic: population is {self.population}; expected at least 5")
        if not 0.5 <= self.bias <= 1:
            raise InputError(f"genetic: bias is {self.bias}; expected a number from 0.5 to 1")
        super().__post_init__()

    def begin(self, problem: Problem, seed: int, budget: int) -> GeneticSearch:
        """The first simulations are of the first generation; without any, METIS's placement is returned."""
        return GeneticSearch(problem, self, seed, budget)


build = Genetic


class GeneticSearch:
    """A generation, sorted by energy."""

    saved: tuple[str, ...] = ("keys", "energies")

    def __init__(self, problem: Problem, settings: Genetic, seed: int, budget: int) -> None:
        """Draws the first generation, and simulates as much of it as the budget allows."""
        self.generator = np.random.default_rng(seed)
        self._settings = settings
        self._problem, self._devices = problem, len(problem.cluster)
        given = starts(levels_of(problem), budget, seed, seconds=settings.seconds)
        first, spent, self.notes = given.placements, given.spent, given.notes
        self.evaluations = Evaluations(problem, first[0], spent)
        self._has_order = settings.order and len(self.evaluations.rule) > 0
        drawn = self.generator.random((max(settings.population - len(first), 0), problem.graph.num_units))
        within = (first + self.generator.random(first.shape)) / self._devices
        keys: Floats = np.concatenate([within, drawn])[: max(budget - spent, 0)]
        if self._has_order:
            keys = np.hstack([keys, np.full(keys.shape, 0.5)])
        self._keep(keys, self._evaluated(keys) if len(keys) else np.zeros(0))
        if self._has_order:
            self.evaluations.compare_orders(given, budget)  # a chromosome cannot say them

    def step(self, elapsed: float, left: int) -> None:  # noqa: ARG002 - all generations are made alike
        """One generation."""
        size = self._settings.population
        elite = max(int(ELITE * size), 1)
        mutants = self.generator.random((max(int(MUTANTS * size), 1), self.keys.shape[1]))
        new = np.concatenate([mutants, self._children(size - elite - len(mutants), elite)])[:left]
        found = self._evaluated(new)
        self._keep(np.concatenate([self.keys[:elite], new]), np.concatenate([self.energies[:elite], found]))

    def _children(self, count: int, elite: int) -> Floats:
        better = self.keys[self.generator.integers(min(elite, len(self.keys)), size=count)]
        other = self.keys[self.generator.integers(len(self.keys), size=count)]
        children = np.where(self.generator.random(better.shape) < self._settings.bias, better, other)
        flipped = self.generator.random(children.shape) < FLIPPED / children.shape[1]
        drawn: Floats = np.where(flipped, self.generator.random(children.shape), children)
        return drawn

    def _evaluated(self, keys: Floats) -> Floats:
        """(plans,) energies of chromosomes."""
        units = len(self._problem.units)
        priorities = self._priorities(keys[:, units:]) if self._has_order else None
        return self.evaluations.energies(self._decoded(keys[:, :units]), priorities)

    def _priorities(self, keys: Floats) -> Floats:
        """(plans, ops) priorities: most keys, those near 1/2, change them little."""
        rule = self.evaluations.rule
        changes: Floats = SHIFT * np.ptp(rule) * (2.0 * keys - 1.0) ** 3
        return rule + changes[:, self._problem.graph.units]

    def _decoded(self, keys: Floats) -> Ints:
        """(plans, units) devices; where a unit may not run, the one that it would be moved to.

        keys of one chromosome     0.31  0.77  0.52  0.08
        two devices: floor(2 key)    0     1     1     0
        """
        devices = np.minimum((keys * self._devices).astype(np.int64), self._devices - 1)
        return self._problem.made_allowed(devices)

    def _keep(self, keys: Floats, energies: Floats) -> None:
        order = np.argsort(energies, kind="stable")
        self.keys, self.energies = keys[order], energies[order]
